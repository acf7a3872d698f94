"""The file of a WordPiece vocabulary: one piece a line."""

from keras_bert.files import read_text, write_atomically


def read_vocabulary(path):
    """Reads a `vocab.txt`: one piece a line, stripped of white space at its ends as BERT does.

    Lines end at "\\n" alone: Chinese vocabularies hold U+2028, which `splitlines` would split at
    (and which, stripped, leaves an empty piece).
    """
    lines = read_text(path, "The vocabulary").split("\n")
    if not lines[-1]:
        lines.pop()  # what follows the last newline is no line
    return [line.strip() for line in lines]


def vocabulary_text(pieces):
    """The content of a `vocab.txt`, which `read_vocabulary` turns into the same list."""
    for number, piece in enumerate(pieces, start=1):
        if piece != piece.strip() or "\n" in piece:
            raise ValueError(
                "A piece must have no white space at its ends and no newline: it is one line. "
                f"Received: {piece!r} as piece {number}."
            )
    return "".join(f"{piece}\n" for piece in pieces)


def write_vocabulary(path, pieces):
    """Writes one piece a line, so that `read_vocabulary` gives the same list back."""
    write_atomically(path, vocabulary_text(pieces))
