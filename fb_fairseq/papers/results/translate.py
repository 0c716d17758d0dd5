"""Find the length penalty with the best score on the validation set, then the best lengths of outputs; translate the
test set with them.

    python -m fb_fairseq.papers.results.translate RUN --metric rouge --key rougeL --language en --lenpens "0.5 1.0" \\
        [--lengths "--max-len-b 80" …] [--raw-ref FILE] -- OPTIONS OF FAIRSEQ-GENERATE

Writes the translations to RUN.valid and RUN.test, and the scores of the test set, with what was chosen, to RUN.scores.
"""

import argparse
import json
import shlex
import subprocess
import sys

from fb_fairseq.command_line import CommandParser
from fb_fairseq.errors import UserError
from fb_fairseq.files import atomic_write


def build_parser() -> CommandParser:
    """The command's options."""
    parser = CommandParser(prog="translate", description=__doc__)
    parser.add_argument("run", metavar="RUN", help="beginning of the names of files")
    for name in ("metric", "key", "language", "lenpens"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--lengths", action="append", default=[], help="options to try, of the lengths of outputs")
    parser.add_argument("--raw-ref", help="references before they were tokenised")
    return parser


def output(words: list[str], path: str | None = None) -> str:
    """Run a command, and return its output, or write it to a file."""
    print(shlex.join(words), flush=True)
    done = subprocess.run(words, stdout=subprocess.PIPE)
    if done.returncode:
        raise UserError(f"{words[0]} failed with status {done.returncode}")
    text = done.stdout.decode(errors="replace")
    if path:
        with atomic_write(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
    return text


def translate(args: argparse.Namespace, generate: list[str], subset: str, chosen: list[str], *more: str) -> dict:
    """Translate a subset, and return its scores."""
    generated = f"{args.run}.{subset}"
    output(["fairseq-generate", *generate, "--gen-subset", subset, *chosen], generated)
    score = ["python", "-m", "fb_fairseq", "score", "--gen", generated, "--language", args.language]
    return json.loads(output([*score, *more]))


def main() -> None:
    """Run the command."""
    split = sys.argv.index("--")
    parser = build_parser()
    args, generate = parser.parse_args(sys.argv[1:split]), sys.argv[split + 1 :]
    first, *others = [shlex.split(lengths) for lengths in args.lengths or [""]]
    with parser.one_line_errors():
        tried = []  # scores, and what they were reached with

        def attempt(chosen: list[str]) -> None:
            value = translate(args, generate, "valid", chosen, "--metrics", args.metric)[args.key]
            print(f"{args.key} {value} on the validation set with {' '.join(chosen)}", flush=True)
            tried.append((value, chosen))

        for lenpen in args.lenpens.split():
            attempt(["--lenpen", lenpen, *first])
        best = max(tried, key=lambda pair: pair[0])[1]
        for lengths in others:
            attempt([*best[:2], *lengths])
        value, best = max(tried, key=lambda pair: pair[0])
        reference = ["--raw-ref", args.raw_ref] if args.raw_ref else []
        scores = translate(args, generate, "test", best, *reference)
        chosen = {name[2:].replace("-", "_"): float(text) for name, text in zip(best[::2], best[1::2])}
        with atomic_write(f"{args.run}.scores") as temporary, open(temporary, "w", encoding="utf-8") as file:
            json.dump({**scores, **chosen, "dev_score": value}, file)


if __name__ == "__main__":
    main()
