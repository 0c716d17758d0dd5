"""Find the length penalty with the best score on the validation set, then the best lengths of outputs; translate the
test set with them.

    translate RUN LANGUAGE METRIC KEY "LENPEN …" "LENGTHS; …" REFERENCE OPTIONS-OF-FAIRSEQ-GENERATE…

RUN: path of the outputs, without their ends. LANGUAGE: theirs. METRIC: of ``score --metrics``, and KEY: of its value in
the JSON of ``score``. LENGTHS: options of fairseq-generate, each with a number. REFERENCE: the file of the test set
before it was tokenised, or an empty word. Writes the translations to RUN.valid and RUN.test, and the scores of the test
set, with what was chosen, to RUN.scores.
"""

import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from operator import itemgetter
from typing import Any


def translate(run: str, generate: Sequence[str], subset: str, chosen: Sequence[str], *score: str) -> dict[str, Any]:
    """Translate a subset to RUN.SUBSET, and return its scores, the JSON of ``score``.

    Args:
        run: path of the outputs, without their ends.
        generate: words of fairseq-generate.
        subset: "valid" or "test".
        chosen: further words of it: the length penalty, and the lengths.
        score: words of ``score``, beside ``--gen``.

    Exits if one of the two commands fails.
    """
    generated = f"{run}.{subset}"
    words = ["fairseq-generate", *generate, "--gen-subset", subset, *chosen]
    print(shlex.join(words), flush=True)
    with open(generated, "wb") as file:
        status = subprocess.run(words, stdout=file).returncode
    done = subprocess.run(["python", "-m", "fb_fairseq", "score", "--gen", generated, *score], stdout=subprocess.PIPE)
    if status or done.returncode:
        sys.exit(f"translating the {subset} set failed; see above")
    return json.loads(done.stdout)


def main() -> None:
    """Run the command."""
    run, language, metric, key, lenpens, lengths, reference, *generate = sys.argv[1:]
    first, *others = (shlex.split(options) for options in lengths.split(";"))

    def attempt(chosen: Sequence[str]) -> tuple[float, Sequence[str]]:
        value = translate(run, generate, "valid", chosen, "--language", language, "--metrics", metric)[key]
        print(f"{key} {value} on the validation set with {' '.join(chosen)}", flush=True)
        return value, chosen

    tried = [attempt(["--lenpen", lenpen, *first]) for lenpen in lenpens.split()]
    lenpen = max(tried, key=itemgetter(0))[1][:2]
    tried += [attempt([*lenpen, *options]) for options in others]
    value, best = max(tried, key=itemgetter(0))
    raw = ["--raw-ref", reference] if reference else []
    scores = translate(run, generate, "test", best, "--language", language, *raw)
    chosen = {name[2:].replace("-", "_"): float(text) for name, text in zip(best[::2], best[1::2])}
    with open(f"{run}.scores", "w", encoding="utf-8") as file:
        json.dump({**scores, **chosen, "dev_score": value}, file)


if __name__ == "__main__":
    main()
