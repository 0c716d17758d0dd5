"""The attention that a language model returns with ``output_attentions``."""

import torch.nn.functional as F
from torch import Tensor

from fb_fairseq.errors import UserError
from fb_fairseq.modules.interface import Stack
from fb_fairseq.ops.windows import by_slot
from fb_fairseq.transformers.cache import StreamCache


def attention(stack: Stack, cache: StreamCache, x_BTD: Tensor, positions_TB: Tensor | None) -> tuple[Tensor, ...]:
    """The attention of a block of embeddings: each layer's weights [B, H, T, C + T]; see ``LanguageModel.forward``.

    Args:
        stack: the model's layers.
        cache: the memory before the block.
        x_BTD: embeddings.
        positions_TB: where texts have padding or are packed, the positions of the tokens in them; otherwise None.
    """
    if not hasattr(stack, "memory_attention"):
        raise UserError(f"output_attentions: {type(stack).__name__} has no attention; leave it out")
    is_step = x_BTD.shape[1] == 1 and cache.position > 0  # whether or not the memory is already that of decoding
    if positions_TB is not None or is_step or cache.decoding:
        raise UserError(
            "output_attentions: not token by token, nor with padding or packed texts; give whole texts of one length"
        )
    state = cache.state
    weights_LBHTS, _ = stack.memory_attention(x_BTD.transpose(0, 1), state)
    carried = 0 if state is None else state.memory_KCBD.shape[1]
    slots = carried + x_BTD.shape[1] - 1  # none attends to the last token
    # (The weights are by distance, the nearest first; ``by_slot`` takes the farthest first.)
    return tuple(F.pad(by_slot(x_BHTS.flip(-1), slots), (0, 1)) for x_BHTS in weights_LBHTS)
