"""``fb-fairseq quickstart``: the recipe of this name."""

import sys

from fb_fairseq.papers.steps import command


def main(argv: list[str] | None = None) -> None:
    """Run the command."""
    command.main(["quickstart", *(sys.argv[1:] if argv is None else argv)], "quickstart")
