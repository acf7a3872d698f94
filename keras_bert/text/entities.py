"""Entities as tags of words: which words make one, in every scheme that data sets use."""

import re

OUTSIDE = "O"
_PREFIXED = re.compile(r"[BIESLU]-.")
_LASTS, _SINGLES = "EL", "SU"  # of BIOES and of BILOU


def are_entity_tags(tags):
    """Whether tags are of a scheme of entities: all of them "O" or "B-...", "I-...", and so on."""
    tags = set(tags) - {OUTSIDE}
    return bool(tags) and all(_PREFIXED.match(tag) for tag in tags)


def begins(tag):
    """Whether a tag begins an entity whatever stands before it: B, and the single word of S and U."""
    return tag[:1] in ("B", *_SINGLES)


def closes(tag):
    """Whether an entity ends with this tag's word whatever follows: the last word, and a single one."""
    return tag[:1] in (*_LASTS, *_SINGLES)


def entities(tags, strict=False):
    """The entities of a sentence's tags, in BIO, IOB1, BIOES or BILOU form.

    A word begins one where its tag is B or S, where the word before ends one or is outside, or where
    their types differ (Tjong Kim Sang & De Meulder 2003, the rule of CoNLL's script).

    Args:
        tags: A tag for each word.
        strict: Whether, of tags in BIO form, entities that do not begin with B are left out.

    Returns:
        List of (type, first word, word behind the last).
    """
    found = []
    before = OUTSIDE
    for index, tag in enumerate([*tags, OUTSIDE]):
        if tag != OUTSIDE:
            if begins(tag) or closes(before) or tag[2:] != before[2:]:
                found.append([tag[2:], index, index])
            found[-1][2] = index + 1
        before = tag
    return [tuple(each) for each in found if not strict or tags[each[1]].startswith("B")]


def to_bio(tags):
    """The same entities in BIO form."""
    bio = [OUTSIDE] * len(tags)
    for kind, start, end in entities(tags):
        bio[start:end] = [f"B-{kind}"] + [f"I-{kind}"] * (end - start - 1)
    return bio
