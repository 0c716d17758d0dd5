"""Refuse models that do not fit into the machine's memory, before they are built."""

from fb_fairseq.hardware import check_layers_fit
from fb_fairseq.patches.wrapping import wrap_once

SIDES = ("encoder", "decoder")


def patch_model_size() -> None:
    """Estimate a model's size from its options, see ``check_layers_fit``.

    Affects: fairseq 0.12.2, fairseq-fixed 0.12.3.1.
    Remove when: a supported fairseq checks it; none does yet.
    """
    from fairseq import models

    wrap_once(models, "build_model", "model_size", _build_checked_model)


def _build_checked_model(original, cfg, *args, **kwargs):
    for side in SIDES:
        names = [f"{side}_{part}" for part in ("layers", "embed_dim", "ffn_embed_dim")]
        sizes = {name: getattr(cfg, name, None) for name in names}
        check_layers_fit({name: size if isinstance(size, int) else None for name, size in sizes.items()})
    return original(cfg, *args, **kwargs)
