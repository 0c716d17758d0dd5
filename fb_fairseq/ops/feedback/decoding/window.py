"""What a layer attends to in a decoding step, and its attention, operation by operation.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

from typing import NamedTuple, Optional

import torch
from torch import Tensor

from fb_fairseq.ops.attention import Positions, step_attention
from fb_fairseq.ops.fallbacks import attention_kernels
from fb_fairseq.ops.feedback.types import FeedbackWeights


class Window(NamedTuple):
    """What a layer attends to: C slots, in any order.

    Attributes:
        positions: relative position embeddings of the slots [C, E], by their distances from the query.
        span_mask_HC: adaptive spans and empty slots: how much of each slot a head sees; None: all of it.
        far_BC: True for slots that a stream may not look at, because they are older than its episode; None: there are
            none.
        seen_1: on a ring whose slots are all passed, filled or not: the number of steps seen, on the device; see
            ``fb_fairseq.ops.triton_attention.Slots``. None: all slots are filled.
    """

    keys_CBHE: Tensor
    values_CBHE: Tensor
    positions: Positions
    span_mask_HC: Optional[Tensor]
    far_BC: Optional[Tensor] = None
    seen_1: Optional[Tensor] = None

    def of_type(self, dtype: torch.dtype) -> "Window":
        """The same with keys and values of another type: those that are projected again at each step are fp32."""
        return self._replace(keys_CBHE=self.keys_CBHE.to(dtype), values_CBHE=self.values_CBHE.to(dtype))


def attend_window(query_BHE: Tensor, window: Window, l: int, weights: FeedbackWeights, kernel: str) -> Tensor:
    """Attention [B, H, E] of layer l over its window, by the Triton kernel where it is asked for and available.

    Args:
        kernel: see ``FeedbackOptions``.
    """
    window = window.of_type(query_BHE.dtype)
    # The kernel has no gradient here, and does not know episodes of a ring.
    if window.seen_1 is not None and window.far_BC is None and not torch.is_grad_enabled():
        kernels = attention_kernels(kernel, query_BHE.device)
        if kernels is not None:
            return kernels.attend_ring(
                query_BHE,
                window.keys_CBHE,
                window.values_CBHE,
                window.seen_1,
                weights.positions,
                weights.layers[l].span_mask_HS,
            )
    return step_attention(
        query_BHE,
        window.keys_CBHE,
        window.values_CBHE,
        window.positions,
        span_mask_HC=window.span_mask_HC,
        far_BC=window.far_BC,
    )
