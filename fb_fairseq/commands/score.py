"""``python -m fb_fairseq score``: BLEU and ROUGE of what ``fairseq-generate`` wrote, or of two files.

- ``sacrebleu``: of detokenised text, with sacreBLEU's signature (Post 2018).
- ``tokenized_bleu``, ``compound_split_bleu``: of the tokens as they are, and with compounds split at hyphens, as
  Vaswani et al. 2017 and the Feedback Transformer (v3 §4.2.1, §6.2) report. Not comparable across tokenisations.
- ``rouge1``, ``rouge2``, ``rougeL``, ``rougeLsum``: mean F1 in percent, with stemming (Lin 2004); rougeLsum takes
  sentences apart (at " . "), as is usual for CNN/DailyMail.

Every hypothesis is counted, or the command stops: where sentence numbers are missing, and with ``--sentences N`` where
there are not N. Subwords left in the text stop it too.
"""

import argparse
import json
import re
import sys
from typing import Dict, List, Tuple

from fb_fairseq.errors import UserError

METRICS = ("sacrebleu", "tokenized_bleu", "compound_split_bleu", "rouge")


def read_generated(path: str) -> Tuple[List[str], List[str]]:
    """Best hypotheses and references of ``fairseq-generate``'s output, in the order of the data.

    Raises:
        UserError: there are none, or some are missing.
    """
    hypotheses: Dict[int, str] = {}
    references: Dict[int, str] = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            found = re.match(r"([TD])-(\d+)\t(?:(?<=\t)(.*))", line.rstrip("\n"))
            if found is None:
                continue
            if found[1] == "T":
                references[int(found[2])] = found[3]
            else:
                hypotheses.setdefault(int(found[2]), found[3].partition("\t")[2])  # --nbest: the best comes first
    if not hypotheses:
        raise UserError(f"--gen {path}: no hypotheses (lines D-0, D-1, …); give the output of fairseq-generate")
    last = max([*hypotheses, *references])
    missing = [n for n in range(last + 1) if n not in hypotheses]
    if missing:
        raise UserError(
            f"--gen {path}: {len(missing)} of {last + 1} hypotheses are missing, the first is D-{missing[0]}; generate all "
            "(--required-batch-size-multiple 1, no --skip-invalid-size-inputs-valid-test, all parts of several processes)"
        )
    order = range(last + 1)
    return [hypotheses[n] for n in order], [references[n] for n in order if n in references]


def read_lines(option: str, path: str) -> List[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return [line.rstrip("\n") for line in file]
    except OSError as error:
        raise UserError(f"{option} {path}: {error.strerror}; give a file with a sentence a line") from error


def refuse_subwords(lines: List[str]) -> None:
    words = [word for line in lines for word in line.split()]
    pieces = sum(word.endswith("@@") or word.startswith("\u2581") for word in words)
    if pieces > len(words) / 100:
        raise UserError(f"{pieces} of {len(words)} words are subwords (@@, \u2581): give fairseq-generate --remove-bpe")


def detokenize(lines: List[str], language: str) -> List[str]:
    from sacremoses import MosesDetokenizer

    detokenizer = MosesDetokenizer(lang=language)
    return [detokenizer.detokenize(line.split()) for line in lines]


def split_compounds(lines: List[str]) -> List[str]:
    """``a-b`` to ``a ##AT##-##AT## b``."""
    return [re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", line) for line in lines]


def bleu(hypotheses: List[str], references: List[str], **options) -> Tuple[float, str]:
    """BLEU and its signature."""
    from sacrebleu.metrics import BLEU

    metric = BLEU(**options)
    score = metric.corpus_score(hypotheses, [references])
    return round(score.score, 2), str(metric.get_signature())


def rouge(hypotheses: List[str], references: List[str]) -> Dict[str, float]:
    from rouge_score.rouge_scorer import RougeScorer

    kinds = ["rouge1", "rouge2", "rougeL", "rougeLsum"]
    scorer = RougeScorer(kinds, use_stemmer=True)

    from sacremoses import MosesDetokenizer

    unescape = MosesDetokenizer().unescape_xml  # &apos; is no word

    def sentences(text):
        return unescape(text).replace(" . ", " .\n")

    scores = [scorer.score(sentences(r), sentences(h)) for h, r in zip(hypotheses, references)]
    return {kind: round(100 * sum(score[kind].fmeasure for score in scores) / len(scores), 2) for kind in kinds}


def score(hypotheses, references, metrics=("sacrebleu",), language="en", raw_references=None) -> Dict[str, object]:
    """The scores of tokenised hypotheses.

    Args:
        references: tokenised as the hypotheses are.
        raw_references: untokenised, for sacreBLEU; by default the references are detokenised.

    Raises:
        UserError: the numbers of lines differ.
    """
    if not hypotheses:
        raise UserError("no hypotheses: give a file with a sentence a line")
    refuse_subwords([*hypotheses, *references])
    for name, lines in (("references", references), ("raw references", raw_references)):
        if lines is not None and len(lines) != len(hypotheses):
            raise UserError(f"{len(hypotheses)} hypotheses and {len(lines)} {name}: give one of each a line")
    results: Dict[str, object] = {"sentences": len(hypotheses)}
    if "sacrebleu" in metrics:
        # fairseq writes <<unk>> for an unknown word, so that no hypothesis has it; sacreBLEU would take it apart.
        known = [line.replace("<<unk>>", "\u2047") for line in references]
        plain = raw_references if raw_references is not None else detokenize(known, language)
        results["sacrebleu"], results["signature"] = bleu(detokenize(hypotheses, language), plain)
    if "tokenized_bleu" in metrics:
        results["tokenized_bleu"] = bleu(hypotheses, references, tokenize="none", force=True)[0]
    if "compound_split_bleu" in metrics:
        pair = split_compounds(hypotheses), split_compounds(references)
        results["compound_split_bleu"] = bleu(*pair, tokenize="none", force=True)[0]
    if "rouge" in metrics:
        results.update(rouge(hypotheses, references))
    return results


def main(argv=None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m fb_fairseq score", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gen", help="output of fairseq-generate (use its --remove-bpe)")
    parser.add_argument("--sys", help="instead: hypotheses, one a line")
    parser.add_argument("--ref", help="references, tokenised as the hypotheses are; by default those in --gen")
    parser.add_argument("--raw-ref", help="untokenised references for sacreBLEU; by default the others, detokenised")
    parser.add_argument("--language", default="en", help="of the hypotheses, for the detokeniser (default: en)")
    parser.add_argument("--sentences", type=int, help="how many there must be: fairseq may have skipped the last ones")
    parser.add_argument("--metrics", nargs="+", choices=METRICS, default=list(METRICS), help="default: all")
    args = parser.parse_args(argv)
    if (args.gen is None) == (args.sys is None) or args.sys is not None and args.ref is None:
        parser.error("give --gen FILE, or --sys FILE and --ref FILE")
    try:
        hypotheses, references = read_generated(args.gen) if args.gen else (read_lines("--sys", args.sys), [])
        references = read_lines("--ref", args.ref) if args.ref else references
        raw = read_lines("--raw-ref", args.raw_ref) if args.raw_ref else None
        if args.sentences is not None and len(hypotheses) != args.sentences:
            raise UserError(f"{len(hypotheses)} hypotheses, not --sentences {args.sentences}: generate all of them")
        results = score(hypotheses, references, args.metrics, args.language, raw)
    except (UserError, OSError) as error:
        parser.error(str(error))
    json.dump(results, sys.stdout)
    print()


if __name__ == "__main__":
    main()
