"""Check a file, and print what was found: ``check md5 FILE MD5``; ``check lines FILE N`` or ``check least FILE N``:
UTF-8 text with so many lines, or at least so many.
"""

import hashlib
from pathlib import Path

from fb_fairseq.errors import UserError
from fb_fairseq.files import open_text
from fb_fairseq.papers.results.program import run_main


def main(kind: str, path: str, wanted: str) -> None:
    """Check a file."""
    if kind == "md5":
        found = hashlib.md5(Path(path).read_bytes()).hexdigest()
    else:
        with open_text(path) as file:
            found = str(sum(1 for _ in file))
    if kind == "least":
        if int(found) < int(wanted):
            raise UserError(f"{path}: has {found} lines, fewer than {wanted}; give more text")
    elif found != wanted:
        raise UserError(
            f"{path}: {kind} {found}, not {wanted}; give the published corpus intact, or --small with another"
        )
    print(found)


if __name__ == "__main__":
    run_main(main)
