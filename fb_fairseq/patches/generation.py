"""Words that fairseq-generate and fairseq-interactive may generate."""

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
