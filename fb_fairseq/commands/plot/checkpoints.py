"""Layer weights and adaptive spans of a checkpoint or an exported folder."""

from fb_fairseq.commands.read_model import read_parameters
from fb_fairseq.errors import UserError


def layer_weights(path: str) -> list[float]:
    """The shares of the embedding and of each layer in the feedback memory: softmax(w) (arXiv 2002.09402v3, Eq. 1)."""
    import torch

    logits = read_parameters(path).parameters.get("decoder.memory.layer_weights")
    if logits is None or logits.dim() != 1 or not logits.is_floating_point():
        raise UserError(f"--layer-weights {path}: has none that are learned; give one of --memory-composition weighted")
    return torch.softmax(logits.float(), 0).tolist()


def adaptive_spans(path: str) -> list[list[float]]:
    """The spans in steps by layer and head, ramp included. ``path``: a checkpoint or an exported folder."""
    from fb_fairseq.tensor_files import using

    trained = read_parameters(path)
    with using(path):
        layers = range(trained.options.get("decoder_layers", 0))
        names = (f"decoder.layers.{l}.self_attn.adaptive_span.z" for l in layers)
        learned = [trained.parameters[name].float().flatten() for name in names if name in trained.parameters]
        if not learned:
            raise UserError(f"--spans {path}: its spans are fixed; give a checkpoint of --adaptive-span")
        S, ramp = (int(trained.options[name]) for name in ("attention_span", "adaptive_span_ramp"))
        return [(z * S + ramp).clamp(max=S).tolist() for z in learned]
