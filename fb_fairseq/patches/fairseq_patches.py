"""fairseq on a current stack: what a plugin can mend, mended when it is imported; and silence about the rest.

Each function says what breaks without it. Checkpoint handling is mended in ``fb_fairseq/checkpoints.py``.
"""

import argparse
import collections
import functools
import logging
import os
import typing
import warnings
from types import SimpleNamespace

import numpy as np
import omegaconf
import torch

LOADS_WEIGHTS_ONLY = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 6)


def allow_checkpoint_classes() -> None:
    """Let ``torch.load`` read the plain classes that fairseq puts into checkpoints and broadcasts.

    torch >= 2.6 loads weights only; fairseq saves an argparse.Namespace (named architectures), numpy scalars
    (``--eval-bleu``), and broadcasts OmegaConf containers when two processes resume.
    """
    if not LOADS_WEIGHTS_ONLY:
        return
    from fairseq.distributed.utils import _TensorPlaceholder

    core = getattr(np, "_core", None) or np.core
    dtypes = {type(np.dtype(t)) for t in (np.float64, np.float32, np.float16, np.int64, np.int32, np.bool_, "U1")}
    omegaconf_classes = [omegaconf.DictConfig, omegaconf.ListConfig, omegaconf.AnyNode]
    omegaconf_classes += [omegaconf.base.ContainerMetadata, omegaconf.base.Metadata]
    torch.serialization.add_safe_globals(
        [argparse.Namespace, np.ndarray, np.dtype, core.multiarray._reconstruct, core.multiarray.scalar]
        + sorted(dtypes, key=str)
        + omegaconf_classes
        + [
            _TensorPlaceholder,
            (typing.Any, "typing.Any"),
            collections.defaultdict,
            dict,
            list,
            int,
        ]  # Any has no name in 3.9
    )


def mend_encoder_fast_path() -> None:
    """Keep encoder layers that were loaded from a checkpoint off torch's fused path.

    On left-padded batches it fails: ``Mask Type should be defined``.
    """
    from fairseq.modules.transformer_layer import TransformerEncoderLayerBase

    load = TransformerEncoderLayerBase._load_from_state_dict
    if getattr(load, "mended", False):
        return

    def load_and_stay_plain(self, *args, **kwargs):
        load(self, *args, **kwargs)
        self.load_to_BT = False

    load_and_stay_plain.mended = True
    TransformerEncoderLayerBase._load_from_state_dict = load_and_stay_plain


def restore_numpy_long() -> None:
    """fairseq's break mode ``eos`` and length buckets use ``np.compat.long``, which numpy 2 has no more."""
    if not hasattr(np, "compat"):
        np.compat = SimpleNamespace(long=int)


def mend_ngram_blocking() -> None:
    """``--no-repeat-ngram-size`` without fairseq's CUDA extension: it compares with the padding to come, and so
    blocks nothing (facebookresearch/fairseq#5206)."""
    from fairseq.ngram_repeat_block import NGramRepeatBlock

    block = NGramRepeatBlock._no_repeat_ngram
    if hasattr(block, "__wrapped__"):
        return

    @functools.wraps(block)
    def block_what_was_said(self, tokens, lprobs, bsz: int, beam_size: int, step: int):
        if self.no_repeat_ngram_size == 1:  # which it does not do at all
            return lprobs.scatter_(1, tokens[:, 1 : step + 1], float("-inf"))
        return block(self, tokens[:, : step + 1], lprobs, bsz, beam_size, step)

    NGramRepeatBlock._no_repeat_ngram = block_what_was_said


def mend_replace_unk() -> None:
    """``--replace-unk``: without a value it looks for a dictionary named "@@ "; and it takes alignments in another form
    than the generator gives, and only gives with ``--print-alignment``."""
    from fairseq import utils
    from fairseq.tasks import FairseqTask

    if hasattr(utils.replace_unk, "__wrapped__"):
        return
    load, replace, build = utils.load_align_dict, utils.replace_unk, FairseqTask.build_generator

    @functools.wraps(load)
    def load_align_dict(replace_unk):
        return load("" if replace_unk == "@@ " else replace_unk)

    @functools.wraps(replace)
    def replace_unk(hypo_str, src_str, alignment, align_dict, unk):
        if alignment and isinstance(alignment[0], tuple):  # hard: pairs of source and target
            sources = {target: source for source, target in alignment}
        else:  # soft: the weights of the source words for each target word
            sources = {t: max(range(len(row)), key=lambda s: float(row[s])) for t, row in enumerate(alignment)}
        return replace(hypo_str, src_str, sources, align_dict, unk)

    @functools.wraps(build)
    def build_generator(self, models, args, *rest, **kwargs):
        if getattr(args, "replace_unk", None) is not None and not getattr(args, "print_alignment", None):
            args.print_alignment = "hard"
        return build(self, models, args, *rest, **kwargs)

    utils.load_align_dict, utils.replace_unk, FairseqTask.build_generator = (
        load_align_dict,
        replace_unk,
        build_generator,
    )


def mend_log_file() -> None:
    """``--log-file``: fairseq opens it again for every epoch, and writes every line as often."""
    from fairseq.logging import progress_bar

    make = progress_bar.progress_bar
    if hasattr(make, "__wrapped__"):
        return

    @functools.wraps(make)
    def make_with_one_file(*args, log_file=None, **kwargs):
        handlers = progress_bar.logger.handlers
        opened = [handler.baseFilename for handler in handlers if isinstance(handler, logging.FileHandler)]
        if log_file is not None and os.path.abspath(log_file) in opened:
            log_file = None
        return make(*args, log_file=log_file, **kwargs)

    progress_bar.progress_bar = make_with_one_file


def mend_torchrun() -> None:
    """Let processes that torchrun started find each other on a machine without GPUs.

    fairseq-fixed divides by the number of GPUs there; and, its world size being 1 by default, it has each process
    train alone and overwrite the others' checkpoints.
    """
    from fairseq.distributed import utils

    infer = utils.infer_init_method
    if hasattr(infer, "__wrapped__"):
        return

    @functools.wraps(infer)
    def infer_init_method(cfg, *args, **kwargs):
        started = all(name in os.environ for name in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK"))
        if started and cfg.distributed_init_method is None:
            cfg.distributed_world_size = int(os.environ["WORLD_SIZE"])
            if torch.cuda.device_count() == 0:
                cfg.distributed_init_method = "env://"
                cfg.distributed_rank = int(os.environ["RANK"])
                cfg.distributed_no_spawn = True
                return
        infer(cfg, *args, **kwargs)

    utils.infer_init_method = infer_init_method


def quiet_warnings() -> None:
    """Warnings of fairseq's own code, about which a user can do nothing."""
    logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)  # asks for tensorboardX
    for message in (
        r".*pin_memory.*",
        r".*torch\.cuda\.amp\..*is deprecated.*",
        r".*mismatched key_padding_mask.*",
        r".*torch\.jit\.script.* is deprecated.*",
        r"(?s).*is validated against ConfigStore schema.*",
        r".*nested tensors is in prototype stage.*",
    ):
        warnings.filterwarnings("ignore", message=message)


def mend() -> None:
    quiet_warnings()
    allow_checkpoint_classes()
    mend_encoder_fast_path()
    restore_numpy_long()
    mend_ngram_blocking()
    mend_replace_unk()
    mend_log_file()
    mend_torchrun()
    from fb_fairseq.patches import checkpoints

    checkpoints.install()
