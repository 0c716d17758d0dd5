"""Models in fairseq's trainer: after an update, and on the way through an encoder."""

from fb_fairseq.patches.wrapping import wrap_once


def patch_optimizer_step() -> None:
    """Call a model's ``after_optimizer_step(optimizer)``, which brings adaptive spans back into their bounds.

    Parameters that an update has moved out of their bounds would be validated, saved and trained further. fairseq tells
    only a task of an update.
    """
    from fairseq.tasks import FairseqTask

    wrap_once(FairseqTask, "optimizer_step", "optimizer_step", _optimizer_step)


def _optimizer_step(original, self, optimizer, model, update_num):
    original(self, optimizer, model, update_num)
    finish = getattr(model, "after_optimizer_step", None)
    if finish is not None:
        finish(optimizer)


def patch_encoder_fast_path() -> None:
    """Keep encoder layers that were loaded from a checkpoint off the fused path.

    On left-padded batches it fails with ``Mask Type should be defined``.

    Affects: fairseq 0.12.2. (fairseq-fixed has no fused path.)
    Remove when: fairseq 0.12.2 is no longer supported.
    """
    from fairseq.modules.transformer_layer import TransformerEncoderLayerBase

    if "_load_from_state_dict" in vars(TransformerEncoderLayerBase):
        wrap_once(TransformerEncoderLayerBase, "_load_from_state_dict", "encoder_fast_path", _load_without_fast_path)


def _load_without_fast_path(original, self, *args, **kwargs):
    original(self, *args, **kwargs)
    self.load_to_BT = False  # the original sets it, which selects the fused path ("better transformer")
