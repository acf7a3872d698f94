"""Documents to sentences as graph ops: one rule for running text, one for a sentence per line.

RE2, the regular expressions of TensorFlow, cannot look behind itself. So full stops that end no
sentence are marked first, sentence ends are replaced by a second mark, and the text is cut there.
"""

import tensorflow as tf

_NO_END, _END = "\x01", "\x02"  # control characters, removed from the input

_SPACE = r"[\s\x0B\p{Z}]"
_NOT_SINGLE_SPACES = (
    rf"{_SPACE}{{2,}}|[\t\n\f\r\x0B\x{{A0}}\x{{1680}}\x{{2000}}-\x{{200A}}\p{{Zl}}\p{{Zp}}]"
)

_TITLES = (
    "Adm Brig Capt Cmdr Col Cpl Dr Drs Esq Fr Gen Gov Hon Jr Lieut Lt Maj Messrs Mlle Mme Mmes Mr Mrs "
    "Ms Prof Rep Rev Sen Sgt Sr Supt"
)
_NAMES = "Assn Ave Blvd Bros Co Corp Dept Ft Inc Ltd Mt St Ste Univ Jan Feb Apr Aug Sept Oct Nov Dec"
_LATIN = "a.m A.M p.m P.M al approx ca cf Cf e.g E.g etc i.e I.e resp viz vs"
_PLACES = "Eq Eqs eq Fig Figs fig figs Ref Refs Sec Tab Vol vol"
_ABBREVIATIONS = " ".join([_TITLES, _NAMES, _LATIN, _PLACES]).replace(".", r"\.").split()

_ABBREVIATED = rf"\b(?:{'|'.join(_ABBREVIATIONS)})\."
_INITIAL = r"\b[A-HJ-Z]\."  # J. Smith, U.S.; not I, which sentences do end with
_LIST_NUMBER = r"(?m:^[ \t]*(?:\d{1,3}|[IVXLC]+)\.)"
_ENDS_NOTHING = rf"({_ABBREVIATED}|{_INITIAL}|{_LIST_NUMBER})"
_BEFORE_NUMBER = rf"(\b(?:[Nn]os?|pp?|[Cc]h)\.)({_SPACE}*\d)"  # No. 5; but "No. He left."

_PARAGRAPH_BREAK = r"\r?\n[ \t\r]*\n\s*"
_CLOSING = r"""["'”’»›)\]}]*"""
_OPENING = r"""[(\[]*(?:["'“‘„«‹]|[\p{Lu}\p{Lt}\p{Nd}])"""
_SENTENCE_END = rf"([.!?…]{_CLOSING}){_SPACE}+({_OPENING})"


def split_sentences(documents):
    """Splits running text: at paragraph breaks, and where a sentence ends and another begins.

    A sentence ends with `.`, `!`, `?` or `…`, perhaps closing quotes or brackets, and white space;
    the next begins with a capital, a digit or an opening quote. Abbreviations (`Dr.`, `e.g.`,
    `p.m.`), single initials (`J. Smith`) and numbers of lists end nothing.

    Shapes (B documents, S sentences):
        documents  (B,)             string  paragraphs are separated by blank lines
        returns    (B, S) ragged    string  on one line each, none empty
    """
    text = tf.strings.regex_replace(documents, f"[{_NO_END}{_END}]", "")
    text = tf.strings.regex_replace(text, _ENDS_NOTHING, rf"\1{_NO_END}")
    text = tf.strings.regex_replace(text, _BEFORE_NUMBER, rf"\1{_NO_END}\2")
    text = tf.strings.regex_replace(text, _PARAGRAPH_BREAK, _END)
    text = tf.strings.regex_replace(text, _SENTENCE_END, rf"\1{_END}\2")
    text = tf.strings.regex_replace(text, _NO_END, "")
    return _tidy(tf.strings.split(text, _END))


def split_lines(documents):
    """Splits text that has a sentence on each line, BERT's own form.

    Shapes (B documents, S sentences):
        documents  (B,)             string
        returns    (B, S) ragged    string  white space is made single, none is empty
    """
    return _tidy(tf.strings.split(documents, "\n"))


def _tidy(sentences):
    def single_spaces(text):
        return tf.strings.strip(tf.strings.regex_replace(text, _NOT_SINGLE_SPACES, " "))

    sentences = sentences.with_flat_values(single_spaces(sentences.flat_values))
    return tf.ragged.boolean_mask(sentences, tf.not_equal(sentences, ""))
