"""Read from checkpoints what models have learned: layer weights, adaptive spans.

fairseq is imported only in the functions that need it, so that learning curves can be drawn without it.
"""

from fb_fairseq.errors import UserError


def load_checkpoint(path: str) -> dict:
    """The content of a checkpoint, with fairseq's patches applied before (see ``tensor_files``)."""
    from fb_fairseq import patches, tensor_files  # noqa: F401  patches: the safe globals

    return tensor_files.load_checkpoint(path)


def model_options(saved: dict) -> dict:
    """The options of a checkpoint's model by name."""
    options = saved["cfg"]["model"]
    return options if isinstance(options, dict) else vars(options)  # a Namespace


def layer_weights(path: str) -> list[float]:
    """The shares of the embedding and of each layer in the feedback memory: softmax(w) (arXiv 2002.09402v3, Eq. 1)."""
    import torch

    logits = load_checkpoint(path)["model"].get("decoder.memory.layer_weights")
    if logits is None or logits.dim() != 1 or not logits.is_floating_point():
        raise UserError(
            f"--layer-weights {path}: its memory has no learned weights; give a checkpoint of "
            "--memory-composition weighted"
        )
    return torch.softmax(logits.float(), 0).tolist()


def adaptive_spans(path: str) -> list[list[float]]:
    """How many steps back each head reaches, ramp included, by layer and head."""
    from fb_fairseq.checkpoint_contents import using

    saved = load_checkpoint(path)
    model, learned = saved["model"], []
    while f"decoder.layers.{len(learned)}.self_attn.adaptive_span.z" in model:
        learned.append(model[f"decoder.layers.{len(learned)}.self_attn.adaptive_span.z"].float().flatten())
    if not learned:
        raise UserError(f"--spans {path}: its spans are fixed; give a checkpoint of --adaptive-span")
    with using(path):
        options = model_options(saved)
        S, ramp = int(options["attention_span"]), int(options["adaptive_span_ramp"])
        return [(z * S + ramp).clamp(max=S).tolist() for z in learned]
