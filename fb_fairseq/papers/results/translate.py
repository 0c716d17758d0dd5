"""Find the length penalty with the best score on the validation set, then the best lengths of outputs; translate the
test set with them.

    translate RUN LANGUAGE METRIC KEY "LENPEN …" "LENGTHS; …" REFERENCE OPTIONS-OF-FAIRSEQ-GENERATE…

METRIC and KEY: of ``score``, and in its JSON. LENGTHS: options of fairseq-generate. REFERENCE: the test set before it
was tokenised, or nothing. Writes the translations to RUN.valid and RUN.test, and the scores of the test set, with what
was chosen, to RUN.scores.
"""

import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from typing import Any


def translate(run: str, generate: Sequence[str], subset: str, chosen: Sequence[str], *score: str) -> dict[str, Any]:
    """Translate a subset to RUN.SUBSET, and return its scores. ``score``: further options of ``score``."""
    generated = f"{run}.{subset}"
    words = ["fairseq-generate", *generate, "--gen-subset", subset, *chosen]
    print(shlex.join(words), flush=True)
    with open(generated, "wb") as file:
        status = subprocess.run(words, stdout=file).returncode
    done = subprocess.run(["python", "-m", "fb_fairseq", "score", "--gen", generated, *score], stdout=subprocess.PIPE)
    if status or done.returncode:
        sys.exit(f"translating the {subset} set failed; see above")
    return json.loads(done.stdout)


def main(
    run: str, language: str, metric: str, key: str, lenpens: str, lengths: str, reference: str, *generate: str
) -> None:
    """Run the command.

    Args:
        run: path of the outputs, without their ends.
        language: of the outputs, for the scores.
        metric: a name of ``score --metrics``.
        key: of its value in the JSON of ``score``.
        lenpens: length penalties to try, between spaces.
        lengths: options of generation to try after that, between semicolons.
        reference: file of the references before they were tokenised; empty: none.
        generate: words of fairseq-generate.
    """
    first, *others = (shlex.split(options) for options in lengths.split(";"))
    tried = []  # scores, and what they were reached with

    def attempt(chosen: Sequence[str]) -> None:
        options = ["--language", language, "--metrics", metric]
        value = translate(run, generate, "valid", chosen, *options)[key]
        print(f"{key} {value} on the validation set with {' '.join(chosen)}", flush=True)
        tried.append((value, chosen))

    for lenpen in lenpens.split():
        attempt(["--lenpen", lenpen, *first])
    best = max(tried, key=lambda pair: pair[0])[1]
    for options in others:
        attempt([*best[:2], *options])
    value, best = max(tried, key=lambda pair: pair[0])
    raw = ["--raw-ref", reference] if reference else []
    scores = translate(run, generate, "test", best, "--language", language, *raw)
    chosen = {name[2:].replace("-", "_"): float(text) for name, text in zip(best[::2], best[1::2])}
    with open(f"{run}.scores", "w", encoding="utf-8") as file:
        json.dump({**scores, **chosen, "dev_score": value}, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
