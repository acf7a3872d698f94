"""From Python source to English prose: reads docstrings without importing, keeps the sentences."""

import ast
import inspect
import re
import warnings

# What a file begins with, what follows the colon of a definition, and NumPy's way of attaching
# texts to compiled functions
DOCSTRING = re.compile(
    r"(?:\A(?:#[^\n]*+|\s)*+|:[ ]*(?:#[^\n]*)?\n\s*|^add_newdoc\([^\n]*\n\s*)"
    r"(?P<raw>[rR]?)(?P<quotes>\"{3}|'{3})(?P<text>.*?)(?<!\\)(?P=quotes)",
    re.DOTALL | re.MULTILINE,
)
DEFINITION = re.compile(r"^(class |def |async def |add_newdoc\()", re.MULTILINE)

FENCE = re.compile(r"(```|~~~)(?!.*\1)")  # a line with two of them is inline code
UNDERLINE = re.compile(r"([-=~^*#_+'\".`])\1{2,}$")
DIRECTIVE = re.compile(r"\.\. ")
NOTE = re.compile(r"\.\. (?:note|warning|tip|hint|important|caution|attention|deprecated)::")
# Sections that hold names, conditions, shapes and links, hardly ever a sentence
NO_PROSE = re.compile(r"(raises?|references?|see also|(input|output) shapes?|methods):?$", re.I)
BULLET = re.compile(r"^(?:[-*+•]|\(?\w[.)]|\d\d[.)]|\[\d+\])\s+")
# "axis: ", "`axis` (int): ", "axis: (int) ", "*args -- ": what a description belongs to
ITEM = re.compile(r"^[`*\"']*[\w.]+[`*\"']*(?:\s*\([^()]*\))?\s*(?::|--?|–)\s+(?:\([^()]*\)\s+)?(?=\S)")
SIGNATURE = re.compile(r"[\w*,.` ]+ : |[\w.]+\(.*\)(\s*->.*)?$|\S+:$|.*::=|[|@#%]|\+-")

INLINE = [  # markup and what stays of it
    (r"!?\[([^\]]+)\]\([^)\s]*\)", r"\1"),  # [words](address)
    (r"`([^`<]+?)\s+<[^`>]+>`_*", r"\1"),  # `words <address>`_
    (r":[\w:+-]+:`[~!]?\.?([^`]+)`", r"\1"),  # :func:`name`
    (r"@\{\$?([^}]*)\}", r"\1"),  # @{name}
    (r"\s*\[(?:#\w*|\*|\d+)\]_|\s\[\d\](?=[\s.,;)])", ""),  # [1]_
    (r"</?(?:a|b|i|p|br|em|code|pre|sub|sup|div|li|ul)\b[^<>]*>", ""),
    (r"`+(?:~?\.?(?=[A-Za-z])|__?(?!\w))?", ""),
    (r"(?<=\w)\(\)", ""),  # name()
    (r" ?\((?:[Ss]ee:? )?https?://[^\s()]*\)", ""),
    (r"(?<![\w*])(\*{1,3})(?=[^\s*])([^*]+)(?<!\s)\1(?![\w*])", r"\2"),  # *emphasis*
    (r"(?<!\w)_(?=[^\W_])([^_]+)(?<!\s)_(?!\w)", r"\1"),  # _emphasis_
    (r"Must be one of the following types: [^.]*\.", ""),  # of every TensorFlow op
    (r"\s+", " "),
]
INLINE = [(re.compile(pattern), words) for pattern, words in INLINE]
SENTENCE_END = re.compile(
    r"(?<![\s.])(?<!\be\.g)(?<!\bi\.e)(?<!\betc)(?<!\bvs)(?<!\bcf)[.!?][\"'”’)\]]*(?=\s|$)"
)
NOT_PROSE = re.compile(r"://|\\|\$.*\$|>>>|::|\.\.\.$|TODO|[\w\])] [-+*/]?= [\w\[(]")
VERB = re.compile(
    r"\b(is|are|was|were|be|been|will|would|can|could|may|might|must|should|has|have|does|do|means|"
    r"needs|returns|defaults|determines|controls|contains|specifies|specify|indicates|allows)\b"
)
SHORTEST = 30  # characters of a paragraph


def read_docstrings(source):
    """The docstrings of a module as lists: its own, then one for each top-level class or function.

    A class's list holds its own docstring and those inside it, in order of appearance. Docstrings
    are recognised by their layout: a parser needs a hundred times as long for the same texts.
    """
    pieces, position = [[]], 0
    for found in DOCSTRING.finditer(source):
        if DEFINITION.search(source, position, found.start("text")):
            pieces.append([])
        pieces[-1].append(_value(found["raw"], found["text"]))
        position = found.end()
    return [piece for piece in pieces if piece]


def _value(raw, text):
    if raw or "\\" not in text:
        return text
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other people's invalid escape sequences
        quoted = text.replace('"', r"\"")
        return ast.literal_eval(f'"""{quoted}"""')


def prose(docstring):
    """The paragraphs of a docstring that are English sentences, each on one line, in plain words.

    Doctests, code, tables, headings, signatures, directives and formulas go; markup becomes plain
    words; of a parameter list, the descriptions that are sentences stay.
    """
    lines = inspect.cleandoc(docstring).split("\n")
    blocks = (block for block in _blocks(_text_lines(lines)) if len(block[0]) >= SHORTEST)
    paragraphs = (_sentences(*block) for block in blocks)
    return [paragraph for paragraph in paragraphs if paragraph]


def _text_lines(lines):
    """Pairs of indentation and text; an empty text stands for whatever was cut out."""
    fenced = doctest = skipped_section = False
    hidden = None  # the indentation that a hidden part, a literal block say, lies under
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        text, indent = line.strip(), len(line) - len(line.lstrip())
        underlined = bool(text and UNDERLINE.match(following.strip()))
        if underlined:
            skipped_section = bool(NO_PROSE.match(text))
        doctest = bool(text) and (doctest or text.startswith(">>>"))
        if text and hidden is not None and indent <= hidden:
            hidden = None
        if FENCE.match(text):
            fenced = not fenced
            text = ""
        elif fenced or doctest or underlined or skipped_section or hidden is not None:
            text = ""
        elif NOTE.match(text):
            text, indent = NOTE.sub("", text).strip(), indent + 3
        elif DIRECTIVE.match(text) or (text.endswith(":") and NO_PROSE.match(text)):
            text, hidden = "", indent
        elif text.endswith("::"):
            text, hidden = text[:-1], indent
        elif UNDERLINE.match(text) or SIGNATURE.match(text):
            text = ""
        yield indent, text


def _blocks(lines):
    """Joins lines into (text, is an item): blank lines, items and indentation separate them."""
    block, is_item, depth = [], False, 0
    for indent, text in lines:
        bare = BULLET.sub("", text, count=1)
        opens_item = bare != text or bool(ITEM.match(bare))
        hangs = is_item and len(block) == 1  # an item's second line sets the depth of the others
        if block and text and not opens_item and (hangs or indent == depth):
            block.append(text)
        else:
            if block:
                yield " ".join(block), is_item
            block, is_item = [bare] if text else [], opens_item
        depth = indent
    if block:
        yield " ".join(block), is_item


def _sentences(text, is_item):
    """The text in plain words up to its last full stop, or "" if it is no English prose."""
    if is_item:
        text = ITEM.sub("", text, count=1)
        if not VERB.search(text):  # a noun phrase
            return ""
        text = text[:1].upper() + text[1:]
    named = text.startswith("`")  # a sentence may start with a name in lower case
    for pattern, words in INLINE:
        text = pattern.sub(words, text)
    ends = [end.end() for end in SENTENCE_END.finditer(text)]
    text = text[: max(ends, default=0)].strip()
    if len(text) < SHORTEST or NOT_PROSE.search(text):
        return ""
    words = text.split(" ")
    plain = sum(word.strip(".,;:!?()\"'“”‘’-").isalpha() for word in words)
    letters = sum(map(str.isalpha, text)) + len(words) - 1
    opens = named or text[0].isupper() or text[0] in "\"'“‘(0123456789"
    return text if opens and plain >= 0.7 * len(words) and letters >= 0.86 * len(text) else ""
