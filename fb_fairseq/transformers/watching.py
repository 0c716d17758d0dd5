"""Attention weights as transformers' ``attentions``.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

import torch.nn.functional as F
from torch import Tensor

from fb_fairseq.errors import UserError
from fb_fairseq.modules.interface import Stack
from fb_fairseq.ops.attention import by_slot
from fb_fairseq.transformers.cache import StreamCache


class WatchedAttention:
    """The attention of one call; see ``LanguageModel.forward``.

    Attributes:
        found: each layer's weights [B, H, T, C + T].
    """

    def __init__(self, stack: Stack, cache: StreamCache | None):
        if not hasattr(stack, "memory_attention"):
            raise UserError(f"output_attentions: {type(stack).__name__} has no attention; leave it out")
        if cache is not None and cache.decoding:
            raise UserError("output_attentions: not token by token; call the model on the whole text")
        self._stack = stack
        self._state = None if cache is None else cache.state
        self.found: tuple[Tensor, ...] = ()

    def look(self, x_BTD: Tensor, positions_TB: Tensor | None) -> None:
        """Compute the attention of a block of embeddings."""
        if positions_TB is not None:
            raise UserError("output_attentions: not with padding or packed texts; give texts of one length")
        weights_LBHTS, _ = self._stack.memory_attention(x_BTD.transpose(0, 1), self._state)
        carried = 0 if self._state is None else self._state.memory_KCBD.shape[1]
        slots = carried + x_BTD.shape[1] - 1  # none attends to the last token
        self.found = tuple(F.pad(by_slot(x_BHTS.flip(-1), slots), (0, 1)) for x_BHTS in weights_LBHTS)
