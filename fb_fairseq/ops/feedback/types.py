"""Arguments and results of the Feedback Transformer's step loop."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fb_fairseq.ops.attention import Positions
from fb_fairseq.ops.dropout import Dropout
from fb_fairseq.ops.layers import Layer, Projection


class KeyValueSet(NamedTuple):
    """Where a set of keys and values comes from. There is one set for all layers, or one per layer.

    Attributes:
        memory: the index of the memory that is projected: 0, or the layer's where each layer has its own.
        projection: the index of the projection, by the same rule.
    """

    memory: int
    projection: int


def one_or_own(layer: int, number: int) -> int:
    """The index of what a layer uses, where there are ``number`` of a kind: one for all layers, or one per layer."""
    return layer if number > 1 else 0


class FeedbackWeights(NamedTuple):
    """All weights of the loop.

    Attributes:
        layers: the layers' weights, without key and value projections.
        projections: key and value projections of the memory: one for all layers, or one per layer.
        mix_KA: memory k of a step is ``Σ_a mix[k, a] x^a``, where x^0 is the embedding and x^a the output of layer a
            (v3 §3.3, Eq. 1). The rows sum to 1.
        positions: relative position embeddings, shared by all layers.
    """

    layers: Sequence[Layer]
    projections: Sequence[Projection]
    mix_KA: Tensor
    positions: Positions

    @property
    def kv_sets(self) -> list[KeyValueSet]:
        """The I sets of keys and values."""
        memories, projections = len(self.mix_KA), len(self.projections)
        sets = range(max(memories, projections))
        return [KeyValueSet(one_or_own(i, memories), one_or_own(i, projections)) for i in sets]


class FeedbackOptions(NamedTuple):
    """Settings of the loop that are not tensors.

    Attributes:
        heads: number of attention heads H.
        span: how many steps back attention reaches, S.
        activation: a key of ``fb_fairseq.ops.layers.ACTIVATIONS``.
        normalize_before: pre-norm; else post-norm.
        recompute: compute a step's activations again in the backward pass instead of keeping them.
        alignment_layer: the layer (from 0) whose attention to the encoder is returned; None: no layer.
        alignment_heads: average that attention over the first heads only; None: over all.
    """

    heads: int
    span: int
    activation: str
    normalize_before: bool
    recompute: bool = False
    alignment_layer: int | None = None
    alignment_heads: int | None = None


class FeedbackDropouts(NamedTuple):
    """Dropout masks, drawn before the loop; None where nothing is dropped."""

    attention_LTBHS: Dropout | None = None
    hidden_LTBF: Dropout | None = None
    attention_residual_LTBD: Dropout | None = None
    ffn_residual_LTBD: Dropout | None = None
    cross_LTBHC: Dropout | None = None
    cross_residual_LTBD: Dropout | None = None

    def at(self, *index: int) -> "FeedbackDropouts":
        """The masks of one layer, or of one layer at one step: the same fields without these dimensions."""
        return FeedbackDropouts(*(mask and mask.at(*index) for mask in self))


class Context(NamedTuple):
    """Keys and values of C slots."""

    keys_CBHE: Tensor
    values_CBHE: Tensor


class EncoderContext(NamedTuple):
    """Keys and values of an encoder's output for one layer: C source positions per sentence.

    In decoding there may be fewer sentences than rows of queries: each sentence then serves n consecutive rows.

    Attributes:
        keys_CBHE, values_CBHE: B counts sentences.
        padding_BC: True where the source is padded; None: nowhere.
    """

    keys_CBHE: Tensor
    values_CBHE: Tensor
    padding_BC: Tensor | None


class StepOutput(NamedTuple):
    """The results of one step.

    Attributes:
        out_BD: the top layer's output x^L, before the final norm.
        memory_KBD: the memories that the step leaves.
        aligned_BC: attention of ``FeedbackOptions.alignment_layer`` to the encoder, averaged over heads; or None.
        representations: the embedding and each layer's output [B, D]; from the reference only.
    """

    out_BD: Tensor
    memory_KBD: Tensor
    aligned_BC: Tensor | None
    representations: Sequence[Tensor] = ()


class BlockInputs(NamedTuple):
    """A block of T steps, before it runs.

    Attributes:
        x_TBD: embeddings, x^0.
        memory_KCBD: memories of the C <= S steps before the block, oldest first; a constant.
        encoder: each layer's keys and values of the encoder's output; empty if there is no encoder.
        age_TB: at each step, the age of each stream's episode, beyond which it does not look back: 0 at the first step
            of an episode, 1 at the next one, … (reinforcement learning). None: it looks as far as its memory goes.
        active: which layers run (LayerDrop); a layer that does not run passes its input on. Loops other than the
            reference run all. None: all.
        dtype: of matrix products, set when the block starts to run; None before.
    """

    x_TBD: Tensor
    memory_KCBD: Tensor
    weights: FeedbackWeights
    options: FeedbackOptions
    dropouts: FeedbackDropouts = FeedbackDropouts()
    encoder: Sequence[EncoderContext] = ()
    age_TB: Tensor | None = None
    active: Sequence[bool] | None = None
    dtype: torch.dtype | None = None


class BlockResults(NamedTuple):
    """The results of a block.

    Attributes:
        out_TBD: the top layer's outputs x^L, before the final norm.
        memory_KTBD: the memories.
    """

    out_TBD: Tensor
    memory_KTBD: Tensor


class Sizes(NamedTuple):
    """Sizes of a block or of a decoding step, named by the letters of the legend.

    Of a decoding step, T is 1, and C and S are what its loop needs of the ring (``cpp/step_call.py``,
    ``triton/steps.py``).

    Attributes:
        C: of a block, carried slots.
        S: of a block, the attention span, capped at the reach of its last step.
        sources: positions of an encoder's output; 0: there is none.
    """

    T: int
    B: int
    D: int
    L: int
    H: int
    E: int
    F: int
    K: int
    C: int
    S: int
    I: int  # noqa: E741
    sources: int = 0

    @property
    def G(self) -> int:
        """B x H."""
        return self.B * self.H

    @property
    def X(self) -> int:
        """H x E."""
        return self.H * self.E


def block_sizes(inputs: BlockInputs) -> Sizes:
    """The sizes of a block."""
    (T, B, _), C = inputs.x_TBD.shape, inputs.memory_KCBD.shape[1]
    span, sources = min(inputs.options.span, max(1, C + T - 1)), 0
    if inputs.encoder:
        sources = len(inputs.encoder[0].keys_CBHE)
    return sizes_of(inputs.weights, inputs.options.heads, T=T, B=B, C=C, S=span, sources=sources)


def sizes_of(weights: Any, heads: int, **others: int) -> Sizes:
    """The sizes of steps with these weights.

    Args:
        weights: ``FeedbackWeights`` or ``ComputeWeights``.
        heads: H.
        others: the sizes that do not depend on weights: T, B, C, S and ``sources``.
    """
    layer = weights.layers[0]
    F, D = layer.fc1.weight.shape
    return Sizes(
        D=D,
        L=len(weights.layers),
        H=heads,
        E=len(layer.query.weight) // heads,
        F=F,
        K=len(weights.mix_KA),
        I=len(weights.kv_sets),
        **others,
    )
