"""Words that fairseq-generate and fairseq-interactive may generate, and scores of empty texts."""

import torch

from fb_fairseq.patches.wrapping import wrap_once
from fb_fairseq.symbols import padding_words


def patch_ngram_blocking() -> None:
    """Make ``--no-repeat-ngram-size`` work without fairseq's CUDA extension.

    fairseq compares n-grams with the end of the token buffer, which is padding that has not been generated yet, and so
    blocks nothing (facebookresearch/fairseq#5206). A size of 1 is not handled at all.
    """
    from fairseq.ngram_repeat_block import NGramRepeatBlock

    wrap_once(NGramRepeatBlock, "_no_repeat_ngram", "ngram_blocking", _block_generated_ngrams)


def _block_generated_ngrams(original, self, tokens, lprobs, bsz: int, beam_size: int, step: int):
    if self.no_repeat_ngram_size == 1:
        return lprobs.scatter_(1, tokens[:, 1 : step + 1], float("-inf"))
    return original(self, tokens[:, : step + 1], lprobs, bsz, beam_size, step)


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


def patch_empty_texts() -> None:
    """Score texts without words. fairseq's C++ for BLEU reads beyond an empty tensor and crashes, and a ``</s>`` that
    stands alone counts as a word, and even as a right one.
    """
    from fairseq.scoring.bleu import Scorer

    wrap_once(Scorer, "add", "empty_texts", _add_to_bleu)
    wrap_once(Scorer, "result_string", "empty_texts", _result_of_bleu)


def _add_to_bleu(original, self, ref, pred):
    ref_words, words = (int(((tokens != self.eos) & (tokens != self.pad)).sum()) for tokens in (ref, pred))
    if ref_words and words:
        original(self, ref, pred)
        return
    self.stat.reflen += ref_words
    self.stat.predlen += words
    self.stat.count1 += words
    self.stat.count2 += max(0, words - 1)
    self.stat.count3 += max(0, words - 2)
    self.stat.count4 += max(0, words - 3)


def _result_of_bleu(original, self, order: int = 4):
    if self.stat.reflen and self.stat.predlen:
        return original(self, order)
    return f"BLEU{order} = 0.00 (syslen={self.stat.predlen}, reflen={self.stat.reflen})"  # no ratio
