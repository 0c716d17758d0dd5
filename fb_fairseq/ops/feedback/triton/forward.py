"""The Triton loop's forward pass: five kernels per layer and step, three more with an encoder, and one for what
the step leaves.

Layer 1 has four in a block, whose queries of all steps are one product. With post-norm a step has one more at its end.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from fb_fairseq.ops.feedback.block import Block
from fb_fairseq.ops.feedback.record import Allocator, Record
from fb_fairseq.ops.feedback.triton import attention, memory, products
from fb_fairseq.ops.feedback.triton.activations import NUMBERS
from fb_fairseq.ops.feedback.triton.launches import AttendedSlots, Launcher, Parts, keep_of
from fb_fairseq.ops.feedback.triton.slots import LaunchedSets, Slots, padded_log_masks, stacked
from fb_fairseq.ops.feedback.types import FeedbackOptions
from fb_fairseq.ops.feedback.weights import contiguous
from fb_fairseq.ops.layers import Affine, Layer, Projection


class Unnormed(NamedTuple):
    """The result of a sublayer, and the norm that the next product takes of it.

    With post-norm this is the sum of the residual connection, and the sublayer's own norm. With pre-norm no norm is
    left, and the next product takes that of its own sublayer.

    Attributes:
        x_BD: the norm's input.
        norm: its weights; None: nothing is left to do.
        statistics_2B: where its mean and 1 / standard deviation belong.
        result_BD: where its result belongs; None: nowhere.
    """

    x_BD: Tensor
    norm: Affine | None = None
    statistics_2B: Tensor | None = None
    result_BD: Tensor | None = None

    @property
    def residual_BD(self) -> Tensor:
        """The branch to which the next sublayer adds; with post-norm it is there once the norm has been taken."""
        return self.x_BD if self.result_BD is None else self.result_BD


class StepKernels:
    """The kernels of a step, in a block and in decoding.

    Args:
        allocator: of the tensors of the steps.
        layers: the layers' weights in the compute type, contiguous.
        options: of the loop.
        slots: those that steps attend to, and the dropout of the steps.
        most: the most slots that a step attends to.
    """

    def __init__(
        self, allocator: Allocator, layers: Sequence[Layer], options: FeedbackOptions, slots: Slots, most: int
    ):
        self.sizes, self.layers, self.slots = allocator.sizes, layers, slots
        self.pre_norm, self.activation = options.normalize_before, options.activation
        self.has_encoder = allocator.sizes.sources > 0
        self.launcher = Launcher(allocator.sizes, allocator.dtype, allocator.wide, allocator.buffers.device, most)
        self.parts = Parts.allocate(self.launcher, allocator)

    def run(
        self, record: Record, at: int, t: int, *, x_BD: Tensor, first_query_BX: Tensor, again: bool = False
    ) -> None:
        """Run the layers on step t; activations go to the record at step ``at``.

        Args:
            x_BD: the step's embedding.
            first_query_BX: layer 1's queries; see ``first_query``.
            again: do not write what the step leaves to its slot: it is there.
        """
        x = record.x[:, at]
        x[0].copy_(x_BD)
        left = Unnormed(x[0])
        for l in range(len(self.layers)):
            left = self._attention(record, at, t, l, left, first_query_BX)
            if self.has_encoder:
                left = self._cross_attention(record, at, t, l, left)
            left = self._feed_forward(record, at, t, l, left)
        if not self.pre_norm:
            self._take_norm(left)
        if not again:
            self._remember(x, t)

    def first_query(self, record: Record, x_BD: Tensor, query_BX: Tensor) -> None:
        """Compute layer 1's queries of a step into ``query_BX``; in a block those of all steps are computed before."""
        layer = self.layers[0]
        norm = layer.attn_norm if self.pre_norm else None
        self._normed_product(Unnormed(x_BD), norm, record.statistics["attn"][:, 0, 0], layer.query, query_BX)

    def _attention(self, record: Record, at: int, t: int, l: int, left: Unnormed, q_BX: Tensor) -> Unnormed:
        """Layer l's attention to the memory; ``left``: by the layer below, returned: by this sublayer.

        Args:
            q_BX: layer 1's queries; those of other layers are computed here.
        """
        layer = self.layers[l]
        statistics = record.statistics["attn"][:, l, at]
        if l > 0:
            q_BX = record.q[at, l]
            self._normed_product(left, layer.attn_norm, statistics, layer.query, q_BX)
        a_BX = record.a[at, l]
        self._attend(self.slots.of_memory(l, t), q=q_BX, out=a_BX, lse=record.lse[at, l])
        result = self._result((l, at), record.attended_x, record.attention_sum, layer.attn_norm, statistics)
        keep = keep_of(self.slots.dropouts.attention_residual_LTBD, l, t)
        return self._product_residual(a_BX, layer.out, left, result, keep_out=keep)

    def _cross_attention(self, record: Record, at: int, t: int, l: int, left: Unnormed) -> Unnormed:
        """Layer l's attention to the encoder; ``left``: by attention to the memory, returned: by this sublayer."""
        cross = self.layers[l].cross
        statistics = record.statistics["cross"][:, l, at]
        q_BX = record.cross_q[at, l]
        self._normed_product(left, cross.attn_norm, statistics, cross.query, q_BX)
        a_BX = record.cross_a[at, l]
        self._attend(self.slots.of_encoder(l, t), q=q_BX, out=a_BX, lse=record.cross_lse[at, l])
        result = self._result((l, at), record.crossed_x, record.cross_sum, cross.attn_norm, statistics)
        keep = keep_of(self.slots.dropouts.cross_residual_LTBD, l, t)
        return self._product_residual(a_BX, cross.out, left, result, keep_out=keep)

    def _feed_forward(self, record: Record, at: int, t: int, l: int, left: Unnormed) -> Unnormed:
        """Layer l's feed-forward sublayer; ``left``: by the attention before it, returned: by this sublayer."""
        layer, masks = self.layers[l], self.slots.dropouts
        statistics = record.statistics["ffn"][:, l, at]
        hidden_BF = record.hidden[l, at]
        self._normed_product(left, layer.ffn_norm, statistics, layer.fc1, hidden_BF, relu=self.activation == "relu")
        result = self._result((l, at), record.x[1:], record.ffn_sum, layer.ffn_norm, statistics)
        return self._product_residual(
            hidden_BF,
            layer.fc2,
            left,
            result,
            keep_out=keep_of(masks.ffn_residual_LTBD, l, t),
            keep_in=keep_of(masks.hidden_LTBF, l, t),
            activation=self.activation,
        )

    def _result(
        self, place: tuple[int, int], x: Tensor, sums: Tensor | None, norm: Affine, statistics_2B: Tensor
    ) -> Unnormed:
        """Where a sublayer's result goes: with post-norm, the sum first, whose norm is left.

        Args:
            place: layer and step in the record.
            x, sums: the record's tensors of results, and with post-norm of sums.
            norm, statistics_2B: the sublayer's own; see ``Unnormed``.
        """
        if self.pre_norm:
            return Unnormed(x[place])
        return Unnormed(sums[place], norm, statistics_2B, x[place])

    def _attend(self, attended: AttendedSlots, **results: Tensor) -> None:
        """Attention; see ``attention.attend``."""
        self.launcher.attend(attention.attend, attended, **results, **self.parts._asdict())

    def _normed_product(
        self,
        left: Unnormed,
        norm: Affine | None,
        statistics_2B: Tensor,
        affine: Affine,
        out: Tensor,
        *,
        relu: bool = False,
    ) -> None:
        """A sublayer's first linear map, to ``out``, of the norm that is left, or else of the sublayer's own.

        Args:
            left: by the sublayer before.
            norm, statistics_2B: the sublayer's own; see ``Unnormed``.
            relu: whether a ReLU follows.
        """
        taken = Unnormed(left.x_BD, norm, statistics_2B) if left.norm is None else left
        norm, N, D = taken.norm, out.shape[-1], self.sizes.D
        mean, rstd = taken.statistics_2B
        self.launcher.product(
            products.normed_product,
            N,
            D,
            x=taken.x_BD,
            norm_weight=norm and norm.weight,
            norm_bias=norm and norm.bias,
            weight=affine.weight,
            bias=affine.bias,
            out=out,
            normed=taken.result_BD,
            mean_out=mean,
            rstd_out=rstd,
            N=N,
            D=D,
            IS_RELU=relu,
        )

    def _product_residual(
        self,
        a: Tensor,
        affine: Affine,
        left: Unnormed,
        result: Unnormed,
        *,
        keep_out: tuple[Tensor | None, float],
        keep_in: tuple[Tensor | None, float] = (None, 1.0),
        activation: str = "linear",
    ) -> Unnormed:
        """A sublayer's last linear map with what is around it: ``result = residual + dropout(f(a) Wᵀ + b)``.

        Args:
            a: the map's input, before f.
            affine: its weights.
            left: by the sublayer before, to which the map's result is added.
            result: where the sum goes; returned.
            keep_out, keep_in: dropout of the map's result and of its input; see ``keep_of``.
            activation: f, a key of ``ACTIVATIONS``.
        """
        D, inner = self.sizes.D, a.shape[-1]
        self.launcher.product(
            products.product_residual,
            D,
            inner,
            a=a,
            weight=affine.weight,
            bias=affine.bias,
            residual=left.residual_BD,
            out=result.x_BD,
            keep_in=keep_in[0],
            keep_out=keep_out[0],
            N=D,
            scale_in=keep_in[1],
            scale_out=keep_out[1],
            INNER=inner,
            KIND=NUMBERS[activation],
        )
        return result

    def _take_norm(self, left: Unnormed) -> None:
        """Take a norm that no product is going to take."""
        mean, rstd = left.statistics_2B
        self.launcher.rows(
            products.norm_rows,
            x=left.x_BD,
            norm_weight=left.norm.weight,
            norm_bias=left.norm.bias,
            out=left.result_BD,
            mean_out=mean,
            rstd_out=rstd,
        )

    def _remember(self, x_ABD: Tensor, t: int) -> None:
        """Merge the representations of step t, and write its keys and values to its slot."""
        s, slots = self.sizes, self.slots
        for sets in slots.sets:
            norm, key, value = sets.projections
            self.launcher.product(
                memory.remember,
                2 * s.X,
                s.D,
                sets=len(sets.keys_IGCE),
                x=x_ABD,
                mix=sets.mix_KA,
                norm_weight=norm and norm.weight,
                norm_bias=norm and norm.bias,
                key_weight=key.weight,
                value_weight=value.weight,
                key_bias=key.bias,
                value_bias=value.bias,
                memory=sets.memory_KTBD[:, t],
                keys=sets.keys_IGCE,
                values=sets.values_IGCE,
                seen=slots.seen_1,
                x_layer=x_ABD.stride(0),
                memory_stride=sets.memory_KTBD.stride(0),
                weight_stride=key.weight.stride(0),
                bias_stride=0 if key.bias is None else key.bias.stride(0),
                slot=s.C + t,
                span=s.S,
                slots=sets.keys_IGCE.shape[2],
                A=s.L + 1,
                K=len(sets.mix_KA),
                PROJECTIONS=len(key.weight),
                D=s.D,
                H=s.H,
                E=s.E,
            )


def slots_of_block(block: Block) -> Slots:
    """A block's slots. (They do not hold the block, which holds them.)"""
    s, weights, inputs = block.sizes, block.weights, block.inputs
    norms = [projection.norm for projection in weights.projections]
    both = stacked([Projection(*parts) for parts in zip(norms, weights.key_values, weights.key_values)])
    # The weights of keys and values are one matrix [2X, D]. ``key`` is all of it: the forward pass reads its rows up
    # to row X, the backward pass all. ``value`` begins at row X.
    value = pytree.tree_map_only(Tensor, lambda x: x[:, s.X :], both.value)
    mix_KA = weights.mix_KA.to(block.wide).contiguous()
    sets = LaunchedSets(
        mix_KA=mix_KA,
        memory_KTBD=block.memory_KTBD,
        projections=both._replace(value=value),
        keys_IGCE=block.slots.keys_IGCE,
        values_IGCE=block.slots.values_IGCE,
    )
    return Slots(
        sizes=s,
        keys_IGCE=sets.keys_IGCE,
        values_IGCE=sets.values_IGCE,
        sets=[sets],
        positions=contiguous(weights.positions),
        log_masks=padded_log_masks(weights.spans, s.S, block.wide),
        reaches=block.reaches,
        encoder=block.encoder,
        dropouts=inputs.dropouts,
        age_TB=None if inputs.age_TB is None else inputs.age_TB.to(torch.int32).contiguous(),
    )


class BlockKernels:
    """A block's kernels. (It does not hold the block, which holds it.)"""

    def __init__(self, block: Block):
        self.slots = slots_of_block(block)
        self.steps = StepKernels(block.allocator, block.weights.layers, block.inputs.options, self.slots, block.sizes.S)

    def forward(self, block: Block, record: Record, first: int, last: int, again: bool) -> None:
        """Run some steps; see ``Loop.forward_steps``."""
        queries_TBX, n = torch.stack(list(block.first_queries(first, last))), last - first
        has_all = record.steps >= n  # else the record has room for one step
        for i in range(n):
            x_BD, at = block.inputs.x_TBD[first + i], i if has_all else 0
            self.steps.run(record, at, first + i, x_BD=x_BD, first_query_BX=queries_TBX[i], again=again)
            if not has_all:
                block.out_TBD[first + i].copy_(record.x[-1, 0])
        if has_all:
            record.q[:n, 0] = queries_TBX
        if has_all and not again:
            block.out_TBD[first:last] = record.x[-1, :n]
