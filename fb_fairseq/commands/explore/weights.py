"""The weights of layers in a model's memory, as HTML."""

import torch

from fb_fairseq.commands.explore.parts import bar, picture
from fb_fairseq.pretrained.model import LanguageModel

ONE_MEMORY = "The memory of a step is this mixture of its embedding and of its layers' outputs."
OWN_MEMORIES = "Each layer has a memory of its own. Layer ← what of a past step it attends to."


@torch.no_grad()
def mix(model: LanguageModel) -> list[list[float]]:
    """The weights of the embedding and of each layer's output in each memory, [K, L + 1]. K is 1, or the number of
    layers where each has a memory of its own.
    """
    return model.stack.loop_weights(model.device, model.stack.reaches()).mix_KA.tolist()


def layer_weights(model: LanguageModel) -> str:
    """The weights of Eq. 1, or of another composition of the memory."""
    weights_KA = mix(model)
    memory = getattr(model.stack, "memory", None)
    is_one = len(weights_KA) == 1
    is_learned = is_one and memory is not None and memory.layer_weights is not None
    if is_learned:
        explanation = f"{ONE_MEMORY} The mark: equal shares, as before training."
    else:
        explanation = ONE_MEMORY if is_one else OWN_MEMORIES
    rows = []
    for k, shares in enumerate(weights_KA, 1):
        for layer, share in enumerate(shares):
            name = f"layer {layer}" if layer else "embedding"
            if share > 0:
                row = name if is_one else f"{k} ← {name}"
                equal = 1 / len(shares) if is_learned else 0.0
                rows.append(bar(row, share, equal, tip=f"{name}: {share:.4f}"))
    return picture("Layer weights", explanation, "ex-bars", "".join(rows))
