"""What a layer attends to in a decoding step, and its attention, operation by operation.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

from typing import NamedTuple, Optional

import torch
from torch import Tensor

from fb_fairseq.ops.attention import Positions, step_attention


class Window(NamedTuple):
    """What a layer attends to: C slots, in any order.

    Attributes:
        positions: relative position embeddings of the slots [C, E], by their distances from the query.
        span_mask_HC: adaptive spans and empty slots: how much of each slot a head sees; None: all of it.
        far_BC: True for slots that a stream may not look at, because they are older than its episode; None: there are
            none.
    """

    keys_CBHE: Tensor
    values_CBHE: Tensor
    positions: Positions
    span_mask_HC: Optional[Tensor]
    far_BC: Optional[Tensor] = None

    def of_type(self, dtype: torch.dtype) -> "Window":
        """The same with keys and values of another type: those that are projected again at each step are fp32."""
        return self._replace(keys_CBHE=self.keys_CBHE.to(dtype), values_CBHE=self.values_CBHE.to(dtype))


def attend_window(query_BHE: Tensor, window: Window) -> Tensor:
    """A layer's attention [B, H, E] over its window."""
    window = window.of_type(query_BHE.dtype)
    return step_attention(
        query_BHE,
        window.keys_CBHE,
        window.values_CBHE,
        window.positions,
        span_mask_HC=window.span_mask_HC,
        far_BC=window.far_BC,
    )
