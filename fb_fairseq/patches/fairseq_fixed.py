"""Differences of fairseq-fixed, the fairseq of Python 3.12, from fairseq 0.12.2 (see docs/fairseq-fixed.md).

On fairseq 0.12.2 none of these patches changes anything.
"""

import inspect
import logging
import os
import re
import sys

import numpy as np

from fb_fairseq.patches.wrapping import wrap_once
from fb_fairseq.trained_model import FUSED_COPY


def is_fixed() -> bool:
    """Whether the fairseq that is installed is fairseq-fixed."""
    import fairseq

    return fairseq.__version__.startswith("0.12.3")


def patch_last_batch() -> None:
    """Keep the last batch of every epoch, validation and test set.

    fairseq-fixed leaves it out if its size is no multiple of ``--required-batch-size-multiple`` (default 8): of 13
    sentences, 5 are neither trained on nor translated nor scored.
    """
    from fairseq.data import data_utils

    wrap_once(data_utils, "batch_by_size", "last_batch", _batch_all)


def _batch_all(original, indices, num_tokens_fn, num_tokens_vec=None, *limits, **options):
    # limits: max_tokens, max_sentences, required_batch_size_multiple, fixed_shapes; fairseq gives all by name
    if not isinstance(indices, np.ndarray):
        indices = np.fromiter(indices, dtype=np.int64, count=-1)
    if not len(indices):  # fairseq-fixed fails
        return []
    batches = original(indices, num_tokens_fn, num_tokens_vec, *limits, **options)
    used = sum(map(len, batches))
    if used < len(indices):
        # The rest is one batch within the limits: with a multiple of 1, it is returned as such.
        left_vec = None if num_tokens_vec is None else num_tokens_vec[used:]
        options.update(required_batch_size_multiple=1, fixed_shapes=None)
        batches = [*batches, *original(indices[used:], num_tokens_fn, left_vec, *limits[:2], **options)]
    return batches


def patch_batches_of_a_resumed_run() -> None:
    """Form the same batches in every epoch and after a resume.

    fairseq-fixed orders sentences by ``--seed`` plus the epoch in which it makes the batches: the first epoch, or the
    one in which a run is resumed. So a resumed run takes up other batches in the middle: it sees some sentences of the
    epoch twice, and others not at all.
    """
    from fairseq.tasks import FairseqTask

    if is_fixed():
        wrap_once(FairseqTask, "get_batch_iterator", "batches_of_a_resumed_run", _iterate_by_seed)


def _iterate_by_seed(original, self, dataset, *args, seed=1, epoch=1, **kwargs):
    if getattr(self.cfg, "rebuild_batches", False):  # batches of each epoch are made anew, in a resumed run too
        return original(self, dataset, *args, seed=seed, epoch=epoch, **kwargs)
    # The original adds the epoch for the order, and hands the seed on to the iterator. One of an earlier call has it.
    iterator = original(self, dataset, *args, seed=seed - epoch, epoch=epoch, **kwargs)
    if getattr(iterator, "seed", None) == seed - epoch:
        iterator.seed = seed
    return iterator


def patch_diverse_beam() -> None:
    """Let ``--diverse-beam-groups`` penalise the words of a step, as in its paper and fairseq 0.12.2.

    fairseq-fixed penalises the words of earlier steps, too, and keeps too few candidates: it fails when all of a
    sentence's beams end.
    """
    from fairseq.search import DiverseBeamSearch

    if "diversity_discount" in inspect.signature(DiverseBeamSearch).parameters:
        wrap_once(DiverseBeamSearch, "__init__", "diverse_beam", _penalise_this_step)


def _penalise_this_step(original, self, *args, **kwargs):
    original(self, *args, **{"diversity_discount": 0.0, "candidate_multiple": 2, **kwargs})


def patch_source_lengths() -> None:
    """Let ``--match-source-len`` count a source's words without ``</s>``: fairseq-fixed generates one word more."""
    from fairseq.sequence_generator import SequenceGenerator

    wrap_once(SequenceGenerator, "_generate", "source_lengths", _count_words)


class _LengthsNotListed(dict):
    """A batch's ``net_input`` in which the generator finds no ``src_lengths``, and counts; encoders do find them."""

    def __contains__(self, name) -> bool:
        return name != "src_lengths" and super().__contains__(name)


def _count_words(original, self, sample, *args, **kwargs):
    sample = {**sample, "net_input": _LengthsNotListed(sample["net_input"])}
    return original(self, sample, *args, **kwargs)


def patch_fused_copies() -> None:
    """Read encoders that were saved by fairseq 0.12.2, which saves most of their parameters twice.

    Affects: fairseq-fixed 0.12.3.1.
    Remove when: fairseq 0.12.2 is no longer supported.
    """
    from fairseq.models.transformer import TransformerEncoderBase

    wrap_once(TransformerEncoderBase, "upgrade_state_dict_named", "fused_copies", _drop_copies)


def _drop_copies(original, self, state_dict, name):
    own = self.state_dict()
    for copy in [key for key in state_dict if key.startswith(f"{name}.layers.") and re.search(FUSED_COPY, key)]:
        if copy[len(name) + 1 :] not in own:
            del state_dict[copy]
    return original(self, state_dict, name)


def patch_root_logger() -> None:
    """Log from level INFO on (or from ``LOGLEVEL``), with times, as fairseq 0.12.2 does from its import on.

    fairseq-fixed sets the root logger to DEBUG, without times: other libraries print their DEBUG lines. A program's
    own handlers stay.
    """
    root = logging.getLogger()
    if "fairseq" not in sys.modules and root.handlers:
        return  # a program has set up its logging before
    import fairseq.models  # noqa: F401  (which sets it)

    if is_fixed() and _is_set_to_debug(root):
        logging.basicConfig(
            format="%(asctime)s | %(levelname)s | %(name)s | %(message)s",
            datefmt="%Y-%m-%d %H:%M:%S",
            level=os.environ.get("LOGLEVEL", "INFO").upper(),
            force=True,
        )


def _is_set_to_debug(root: logging.Logger) -> bool:
    """Whether the root logger is as ``logging.basicConfig(level=logging.DEBUG)`` leaves it."""
    if root.level != logging.DEBUG or len(root.handlers) != 1 or type(root.handlers[0]) is not logging.StreamHandler:
        return False
    return getattr(root.handlers[0].formatter, "_fmt", None) == logging.BASIC_FORMAT
