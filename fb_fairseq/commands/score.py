"""Measure BLEU and ROUGE of generated text.

    fairseq-generate DATA-BIN --user-dir fb_fairseq --path checkpoint_best.pt --remove-bpe > gen.txt
    fb-fairseq score --gen gen.txt --sentences 6750
    fb-fairseq score --sys hypotheses.txt --ref references.txt --metrics rouge

Prints one JSON line with the chosen metrics:

- sacrebleu: BLEU of detokenised text, with sacreBLEU's tokeniser for --language, and its signature (Post 2018).
- tokenized_bleu, compound_split_bleu: BLEU of the tokens as they are, and with compounds split at hyphens. Vaswani
  et al. 2017 and the Feedback Transformer (arXiv 2002.09402v3, §4.2.1, §6.2) report these. They are not comparable
  between different tokenisations.
- rouge: rouge1, rouge2, rougeL and rougeLsum, mean F1 in percent (Lin 2004); of English with stemming, of Chinese and
  Japanese by characters. As is usual for CNN/DailyMail, rougeLsum compares sentence by sentence, where sentences end
  at " . ".

All hypotheses are scored. The command refuses input in which sentences are missing from the middle, or, with
--sentences N, from the end; and text that still consists of subwords.
"""

import json
import re
import sys
from collections.abc import Sequence
from types import SimpleNamespace

from fb_fairseq.command_line import CommandParser
from fb_fairseq.errors import UserError
from fb_fairseq.files import open_text

METRICS = ("sacrebleu", "tokenized_bleu", "compound_split_bleu", "rouge")
ROUGE_KINDS = ("rouge1", "rouge2", "rougeL", "rougeLsum")
# At most one word in this many may look like a subword: some real words do.
WORDS_PER_SUBWORD = 100
WITHOUT_SPACES = ("zh", "ja")  # languages that write no spaces between words
# fairseq writes an unknown word of a reference as <<unk>>, so that no hypothesis can match it. sacreBLEU's tokeniser
# would split that into several tokens, which could match; it keeps this character as one token.
UNKNOWN, UNKNOWN_CHARACTER = "<<unk>>", "\u2047"


def read_generated(path: str) -> tuple[list[str], list[str]]:
    """The best hypotheses (``D-…``) and references (``T-…``) in ``fairseq-generate``'s output, in the data's order."""
    hypotheses: dict[int, str] = {}
    references: dict[int, str] = {}
    with open_text(path) as file:
        for line in file:
            found = re.match(r"([TD])-(\d+)\t(.*)", line.rstrip("\n"))
            if found is None:
                continue
            kind, number, content = found.groups()
            if kind == "T":
                references[int(number)] = content
            else:  # with --nbest the best one comes first
                hypotheses.setdefault(int(number), content.partition("\t")[2])
    if not hypotheses:
        raise UserError(f"--gen {path}: no hypotheses (lines D-0, D-1, …); give the output of fairseq-generate")
    order = range(max([*hypotheses, *references]) + 1)
    missing = [n for n in order if n not in hypotheses]
    if missing:
        raise UserError(
            f"--gen {path}: {len(missing)} of {len(order)} hypotheses are missing, the first is D-{missing[0]}; "
            "generate all (no --skip-invalid-size-inputs-valid-test, all parts of several processes)"
        )
    return [hypotheses[n] for n in order], [references[n] for n in order if n in references]


def read_lines(path: str) -> list[str]:
    """The lines of a file."""
    with open_text(path) as file:
        return [line.rstrip("\n") for line in file]


def refuse_subwords(lines: list[str]) -> None:
    """Check that the subwords of BPE (``@@`` at their end) or SentencePiece (``▁`` at their start) have been joined."""
    words = [word for line in lines for word in line.split()]
    subwords = sum(word.endswith("@@") or word.startswith("\u2581") for word in words)
    if subwords > len(words) / WORDS_PER_SUBWORD:
        raise UserError(
            f"{subwords} of {len(words)} words are subwords (@@, \u2581); use fairseq-generate --remove-bpe"
        )


def detokenize(lines: list[str], language: str) -> list[str]:
    """Undo the Moses tokenisation of a language (``en``, ``de``, …)."""
    from sacremoses import MosesDetokenizer

    detokenizer = MosesDetokenizer(lang=language)
    return [detokenizer.detokenize(line.split()) for line in lines]


def split_compounds(lines: list[str]) -> list[str]:
    """Split compounds at hyphens: ``a-b`` becomes ``a ##AT##-##AT## b``, as in tensor2tensor's get_ende_bleu.sh."""
    return [re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", line) for line in lines]


def bleu(hypotheses: list[str], references: list[str], **options) -> tuple[float, str]:
    """BLEU and its signature. The options are those of ``sacrebleu.metrics.BLEU``."""
    from sacrebleu.metrics import BLEU

    try:
        metric = BLEU(**options)
    except (ImportError, RuntimeError) as error:  # of Japanese and Korean
        raise UserError(f"--language {options.get('trg_lang')}: {' '.join(str(error).split())}") from None
    result = metric.corpus_score(hypotheses, [references])
    return round(result.score, 2), str(metric.get_signature())


def rouge(hypotheses: list[str], references: list[str], language: str = "en") -> dict[str, float]:
    """Mean F1 of each kind of ROUGE, in percent. Of English, words are of a to z and digits alone, as in its own
    tokeniser; of Chinese and Japanese, they are characters.
    """
    from rouge_score.rouge_scorer import RougeScorer
    from sacremoses import MosesDetokenizer

    word = re.compile(r"\w" if language in WITHOUT_SPACES else r"\w+")
    tokenizer = None if language == "en" else SimpleNamespace(tokenize=lambda text: word.findall(text.lower()))
    scorer = RougeScorer(list(ROUGE_KINDS), use_stemmer=language == "en", tokenizer=tokenizer)
    unescape = MosesDetokenizer().unescape_xml  # otherwise &apos; would count as the word apos

    def one_sentence_per_line(text: str) -> str:
        return re.sub(r" ([.。]) ", r" \1\n", unescape(text))

    scores = [
        scorer.score(one_sentence_per_line(reference), one_sentence_per_line(hypothesis))
        for hypothesis, reference in zip(hypotheses, references)
    ]
    return {kind: round(100 * sum(each[kind].fmeasure for each in scores) / len(scores), 2) for kind in ROUGE_KINDS}


def score(
    hypotheses: list[str],
    references: list[str],
    raw_references: list[str] | None = None,
    metrics: Sequence[str] = ("sacrebleu",),
    language: str = "en",
) -> dict[str, object]:
    """Score hypotheses.

    Args:
        hypotheses: lines of whole words, tokenised.
        references: as many, tokenised like the hypotheses.
        raw_references: untokenised, for sacreBLEU; None: the references are detokenised for it.
        metrics: some of ``METRICS``.
        language: of the hypotheses: the detokeniser, sacreBLEU's tokeniser and ROUGE's words depend on it.

    Returns:
        The number of sentences and the scores by name, as in the JSON line.
    """
    if not hypotheses:
        raise UserError("no hypotheses: give a file with one sentence per line")
    refuse_subwords([*hypotheses, *references])
    for name, lines in (("references", references), ("raw references", raw_references)):
        if lines is not None and len(lines) != len(hypotheses):
            raise UserError(f"{len(hypotheses)} hypotheses and {len(lines)} {name}: give one of each per line")
    language = re.split("[-_]", language.lower())[0]  # zh of zh_CN and zh-Hans
    results: dict[str, object] = {"sentences": len(hypotheses)}
    if "sacrebleu" in metrics:
        if raw_references is None:
            known = [line.replace(UNKNOWN, UNKNOWN_CHARACTER) for line in references]
            raw_references = detokenize(known, language)
        results["sacrebleu"], results["signature"] = bleu(
            detokenize(hypotheses, language), raw_references, trg_lang=language
        )
    for name, split in (("tokenized_bleu", list), ("compound_split_bleu", split_compounds)):
        if name in metrics:
            results[name], _ = bleu(split(hypotheses), split(references), tokenize="none", force=True)
    if "rouge" in metrics:
        results.update(rouge(hypotheses, references, language))
    return results


def build_parser() -> CommandParser:
    """The command's options."""
    parser = CommandParser("score", description=__doc__)
    parser.add_argument("--gen", metavar="FILE", help="output of fairseq-generate (run it with --remove-bpe)")
    parser.add_argument("--sys", metavar="FILE", help="instead of --gen: hypotheses, one per line")
    parser.add_argument("--ref", metavar="FILE", help="references, tokenised like the hypotheses (default: of --gen)")
    parser.add_argument(
        "--raw-ref",
        metavar="FILE",
        help="untokenised references for sacreBLEU (default: the tokenised references are detokenised)",
    )
    parser.add_argument("--language", default="en", help="language of the hypotheses: de, zh, … (default: %(default)s)")
    parser.add_argument(
        "--sentences",
        type=int,
        metavar="N",
        help="expected number of hypotheses; without it, sentences that fairseq skipped at the end go unnoticed",
    )
    parser.add_argument("--metrics", nargs="+", choices=METRICS, default=list(METRICS), help="metrics (default: all)")
    return parser


def main(argv=None) -> None:
    """Run the command; see ``--help``."""
    parser = build_parser()
    args = parser.parse_args(argv)
    if bool(args.gen) == bool(args.sys) or args.sys and not args.ref:
        parser.error("give --gen FILE, or --sys FILE and --ref FILE")
    with parser.one_line_errors():
        hypotheses, references = read_generated(args.gen) if args.gen else (read_lines(args.sys), [])
        if args.sentences not in (None, len(hypotheses)):
            raise UserError(f"{len(hypotheses)} hypotheses, not --sentences {args.sentences}: generate all of them")
        references = read_lines(args.ref) if args.ref else references
        raw_references = read_lines(args.raw_ref) if args.raw_ref else None
        results = score(hypotheses, references, raw_references, args.metrics, args.language)
    json.dump(results, sys.stdout)
    print()
