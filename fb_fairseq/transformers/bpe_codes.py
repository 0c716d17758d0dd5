"""subword-nmt's codes, for a tokenizer that applies them exactly as subword-nmt does."""

from fb_fairseq.errors import UserError
from fb_fairseq.files import open_text

END_OF_WORD = "</w>"  # at the end of a piece that ends a word
Merge = tuple[str, str]
VERSION = "#version:"


def read_merges(path: str) -> list[Merge]:
    """The merges of a file of codes, in their order."""
    with open_text(path) as file:
        lines = file.read().rstrip("\n").split("\n")
    if not lines[0].startswith(VERSION) or lines[0].split()[-1] != "0.2":
        raise UserError(f"{path}: must begin with {VERSION} 0.2; learn the codes with subword-nmt 0.2 or later")
    merges: dict[Merge, None] = {}  # the first of several equal ones counts
    for number, line in enumerate(lines[1:], start=2):
        merge = tuple(line.strip("\r\n ").split(" "))
        if len(merge) != 2 or not all(merge):
            raise UserError(f"{path}:{number}: must be two pieces separated by a space; give subword-nmt's codes")
        left, right = merge
        in_word = right[: -len(END_OF_WORD)] if right.endswith(END_OF_WORD) else right
        if END_OF_WORD in left + in_word or not in_word:
            raise UserError(
                f"{path}:{number}: {END_OF_WORD} may stand only at the end of the second piece, after other "
                "characters; learn the codes again, from text without it"
            )
        merges[merge] = None
    _check_order(list(merges), path)
    return list(merges)


def _check_order(merges: list[Merge], path: str) -> None:
    """Check that every piece is made before it is used.

    If so, it makes no difference that subword-nmt merges all occurrences of a pair before it looks at pairs with the
    new piece, while tokenizers looks at these after every occurrence. Codes that were learned have this order.
    """
    first_use: dict[str, int] = {}
    for rank, merge in enumerate(merges):
        for piece in merge:
            first_use.setdefault(piece, rank)
    for rank, merge in enumerate(merges):
        piece = "".join(merge)
        if first_use.get(piece, rank) < rank:
            raise UserError(
                f"{path}: {' '.join(merge)!r} makes {piece!r} after a merge that uses it; give the codes in the order "
                "in which they were learned"
            )
