"""Fix ``--no-repeat-ngram-size`` and ``--replace-unk`` of fairseq-generate and fairseq-interactive, the words that they
may generate, and those that fairseq-eval-lm counts."""

import torch

from fb_fairseq.errors import UserError
from fb_fairseq.meaning import padding_words
from fb_fairseq.patches.wrapping import wrap_once

# Value of --replace-unk given without an argument.
REPLACE_UNK_DEFAULT = "@@ "


def patch_ngram_blocking() -> None:
    """Make ``--no-repeat-ngram-size`` work without fairseq's CUDA extension.

    fairseq compares n-grams with the end of the token buffer, which is padding that has not been generated yet, and so
    blocks nothing (facebookresearch/fairseq#5206). A size of 1 is not handled at all."""
    from fairseq.ngram_repeat_block import NGramRepeatBlock

    wrap_once(NGramRepeatBlock, "_no_repeat_ngram", "ngram_blocking", _block_generated_ngrams)


def _block_generated_ngrams(original, self, tokens, lprobs, bsz: int, beam_size: int, step: int):
    if self.no_repeat_ngram_size == 1:
        return lprobs.scatter_(1, tokens[:, 1 : step + 1], float("-inf"))
    return original(self, tokens[:, : step + 1], lprobs, bsz, beam_size, step)


def patch_align_dict_default() -> None:
    """Let ``--replace-unk`` without a value copy source words; fairseq mistakes its default for a file name."""
    from fairseq import utils

    wrap_once(utils, "load_align_dict", "align_dict_default", _load_align_dict)


def _load_align_dict(original, replace_unk):
    return original("" if replace_unk == REPLACE_UNK_DEFAULT else replace_unk)


def patch_alignment_format() -> None:
    """Convert the generator's alignments to what ``--replace-unk`` expects: a source position per target position."""
    from fairseq import utils

    wrap_once(utils, "replace_unk", "alignment_format", _replace_unk)


def _replace_unk(original, hypo_str, src_str, alignment, align_dict, unk):
    if alignment and isinstance(alignment[0], tuple):  # hard: pairs (source position, target position)
        sources = {target: source for source, target in alignment}
    else:  # soft: for each target word, the weights of all source words
        sources = {t: max(range(len(row)), key=lambda s: float(row[s])) for t, row in enumerate(alignment)}
    return original(hypo_str, src_str, sources, align_dict, unk)


def patch_padding_words() -> None:
    """Never generate the words with which fairseq-preprocess pads a dictionary (facebookresearch/fairseq#180)."""
    from fairseq.tasks import FairseqTask

    wrap_once(FairseqTask, "build_generator", "padding_words", _build_generator_without_padding)


def _build_generator_without_padding(original, self, models, args, *rest, **kwargs):
    from fairseq.sequence_generator import SequenceGenerator

    generator = original(self, models, args, *rest, **kwargs)
    never = padding_words(getattr(self.target_dictionary, "symbols", ()))
    if never and isinstance(generator, SequenceGenerator):
        known = generator.token_indices_to_suppress
        known = [] if known is None else known.tolist()
        generator.token_indices_to_suppress = torch.tensor([*known, *never])
    return generator


def patch_alignment_request() -> None:
    """Compute alignments for ``--replace-unk``; fairseq does so only with ``--print-alignment``."""
    from fairseq.tasks import FairseqTask

    wrap_once(FairseqTask, "build_generator", "alignment_request", _build_generator_with_alignment)


def _build_generator_with_alignment(original, self, models, args, *rest, **kwargs):
    if getattr(args, "replace_unk", None) is not None and not getattr(args, "print_alignment", None):
        args.print_alignment = "hard"
    return original(self, models, args, *rest, **kwargs)


def patch_empty_texts() -> None:
    """Score texts without words: fairseq's C++ for BLEU reads beyond an empty tensor and crashes."""
    from fairseq.scoring.bleu import Scorer

    wrap_once(Scorer, "add", "empty_texts", _add_to_bleu)


def _add_to_bleu(original, self, ref, pred):
    # (</s> at the ends does not count.)
    ref, pred = (tokens if tokens.numel() else tokens.new_full((1,), self.eos) for tokens in (ref, pred))
    return original(self, ref, pred)


def patch_line_scores() -> None:
    """Let fairseq-eval-lm count words in lines instead of blocks, where a task gives a sample ``lines``.

    It counts a word twice that ends in the next block, and joins no pieces of words across blocks. A task has no hook
    between scoring and counting. (It also takes the scores of the wrong steps after a padding symbol within a stream,
    which is refused.)"""
    from fairseq.sequence_scorer import SequenceScorer

    wrap_once(SequenceScorer, "generate", "line_scores", _score)


def _score(original, self, models, sample, **kwargs):
    hypotheses = original(self, models, sample, **kwargs)
    if "block" in sample:  # of streams
        for (hypothesis,), length in zip(hypotheses, sample["net_input"]["src_lengths"].tolist()):
            if len(hypothesis["tokens"]) != length:
                raise UserError("--gen-subset: the text has the symbol <pad>; use fairseq-validate, which ignores it")
    for hypothesis in (best for group in hypotheses for best in group):
        if not len(hypothesis["tokens"]):
            hypothesis["score"] = torch.tensor(0.0)  # of an empty text, which fairseq divides by its length
    return sample["lines"].replace(sample, hypotheses) if "lines" in sample else hypotheses
