"""What goes into the Feedback Transformer's step loop and comes out of it.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

from typing import NamedTuple, Optional, Sequence

from torch import Tensor

from fb_fairseq.ops.attention import Positions
from fb_fairseq.ops.layers import Dropout, Layer, Projection


class FeedbackWeights(NamedTuple):
    """All weights of the loop.

    mix_KN: memory k of a step is ``Σ_n mix[k, n] x^n``, with x^0 the embedding and x^n the output of layer n.
    projections: one for all layers, or one a layer.
    """

    layers: Sequence[Layer]
    projections: Sequence[Projection]
    mix_KN: Tensor
    positions: Positions


class FeedbackOptions(NamedTuple):
    heads: int
    span: int
    activation: str
    normalize_before: bool
    kernel: str = "torch"  # of the fast loop's attention: torch's products, or "triton"
    recompute: bool = False  # in the backward pass, instead of keeping a step's activations
    alignment_layer: Optional[int] = None  # the layer whose attention to the encoder is reported
    alignment_heads: Optional[int] = None  # the mean is over so many heads; None: all


class Context(NamedTuple):
    """Keys and values of C slots."""

    keys_CBHE: Tensor
    values_CBHE: Tensor


class Window(NamedTuple):
    """What a layer attends to: C slots in any order, and what goes by their distance from the query.

    seen_1: where the slots are a circle that steps fill, how many there were (see ``triton_attention.Slots``).
    """

    keys_CBHE: Tensor
    values_CBHE: Tensor
    positions: Positions
    span_mask_HC: Optional[Tensor]
    seen_1: Optional[Tensor] = None


class EncoderContext(NamedTuple):
    """What a layer's attention to the encoder sees: the C positions of each source; padding_BC is True on padding.

    Of fewer sources than there are streams each is that of n streams, one after the other (single steps only)."""

    keys_CBHE: Tensor
    values_CBHE: Tensor
    padding_BC: Optional[Tensor]


class StepOutput(NamedTuple):
    """out_BD: the top layer's output. memory_KBD: what the step leaves. aligned_BC: ``alignment_layer``'s attention to
    the encoder, mean over the heads."""

    out_BD: Tensor
    memory_KBD: Tensor
    aligned_BC: Optional[Tensor]


class FeedbackDropouts(NamedTuple):
    """Masks drawn before the loop; None where nothing is dropped."""

    attention_LTBHS: Optional[Dropout] = None
    hidden_LTBF: Optional[Dropout] = None
    attention_residual_LTBD: Optional[Dropout] = None
    ffn_residual_LTBD: Optional[Dropout] = None
    cross_LTBHC: Optional[Dropout] = None
    cross_residual_LTBD: Optional[Dropout] = None

    def at(self, layer: int, step: int) -> "FeedbackDropouts":
        return FeedbackDropouts(*(mask and mask.at(layer, step) for mask in self))
