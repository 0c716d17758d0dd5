"""The Triton loop's forward pass: five kernels per layer and step, and one for what the step leaves."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from fb_fairseq.ops.feedback.block import Block, Record, Room, contiguous
from fb_fairseq.ops.feedback.triton import attention, memory, products
from fb_fairseq.ops.feedback.triton.launches import AttendedSlots, Launcher, Parts, keep_of
from fb_fairseq.ops.feedback.triton.products import NUMBERS
from fb_fairseq.ops.feedback.triton.slots import LaunchedSets, Slots, log_masks, stacked
from fb_fairseq.ops.feedback.types import FeedbackOptions
from fb_fairseq.ops.layers import Affine, Layer, Projection


class Unnormed(NamedTuple):
    """Input of a kernel, and the norm that it takes first.

    With pre-norm it is a sublayer's input. With post-norm it is the sum of a residual connection, whose norm the next
    kernel that reads it takes.

    Attributes:
        x_BD: the norm's input.
        norm: its weights; None: ``x_BD`` is read as it is.
        statistics_2B: where its mean and 1 / standard deviation belong.
        result_BD: where its result belongs; None: nowhere.
    """

    x_BD: Tensor
    norm: Affine | None = None
    statistics_2B: Tensor | None = None
    result_BD: Tensor | None = None


class StepKernels:
    """The kernels of a step, in a block and in decoding.

    Args:
        room: of the tensors of the steps.
        layers: the layers' weights in the compute type, contiguous.
        options: of the loop.
        slots: those that steps attend to, and the dropout of the steps.
        most: the most slots that a step attends to.
    """

    def __init__(self, room: Room, layers: Sequence[Layer], options: FeedbackOptions, slots: Slots, most: int):
        self.sizes, self.layers, self.slots = room.sizes, layers, slots
        self.pre_norm, self.relu = options.normalize_before, options.activation == "relu"
        self.kind, self.has_encoder = NUMBERS[options.activation], room.sizes.sources > 0
        self.launcher = Launcher(room.sizes, room.dtype, room.wide, room.buffers.device, most)
        self.parts = Parts.allocate(self.launcher, room)

    def run(
        self, record: Record, at: int, t: int, *, x_BD: Tensor, first_query_BX: Tensor, again: bool = False
    ) -> None:
        """Run the layers on step t; activations go to the record at step ``at``.

        Args:
            x_BD: the step's embedding.
            first_query_BX: layer 1's queries; see ``first_query``.
            again: do not write what the step leaves to its slot: it is there.
        """
        r, pre_norm, masks = record, self.pre_norm, self.slots.dropouts
        x = r.x[:, at]
        x[0].copy_(x_BD)
        q = first_query_BX
        pending = Unnormed(x[0])  # with post-norm, what the sublayer before has left
        for l, layer in enumerate(self.layers):
            # Attention to the memory.
            statistics = r.statistics["attn"][:, l, at]
            if l > 0:
                q = r.q[at, l]
                taken = Unnormed(x[l], layer.attn_norm, statistics) if pre_norm else pending
                self._normed_product(taken, layer.query, q)
            a = r.a[at, l]
            x_now = r.attended_x[l, at]
            result = x_now if pre_norm else r.attention_sum[l, at]
            self._attend(self.slots.of_memory(l, t), q=q, out=a, lse=r.lse[at, l])
            keep = keep_of(masks.attention_residual_LTBD, l, t)
            self._product_residual(a, layer.out, x[l], result, keep_out=keep)
            pending = Unnormed(result, layer.attn_norm, statistics, x_now)
            if self.has_encoder:
                cross = layer.cross
                statistics = r.statistics["cross"][:, l, at]
                taken = Unnormed(x_now, cross.attn_norm, statistics) if pre_norm else pending
                q = r.cross_q[at, l]
                self._normed_product(taken, cross.query, q)
                a = r.cross_a[at, l]
                residual, x_now = x_now, r.crossed_x[l, at]
                result = x_now if pre_norm else r.cross_sum[l, at]
                self._attend(self.slots.of_encoder(l, t), q=q, out=a, lse=r.cross_lse[at, l])
                keep = keep_of(masks.cross_residual_LTBD, l, t)
                self._product_residual(a, cross.out, residual, result, keep_out=keep)
                pending = Unnormed(result, cross.attn_norm, statistics, x_now)
            # Feed-forward sublayer.
            statistics = r.statistics["ffn"][:, l, at]
            taken = Unnormed(x_now, layer.ffn_norm, statistics) if pre_norm else pending
            hidden = r.hidden[l, at]
            self._normed_product(taken, layer.fc1, hidden, relu=self.relu)
            result = x[l + 1] if pre_norm else r.ffn_sum[l, at]
            self._product_residual(
                hidden,
                layer.fc2,
                x_now,
                result,
                keep_out=keep_of(masks.ffn_residual_LTBD, l, t),
                keep_in=keep_of(masks.hidden_LTBF, l, t),
                kind=self.kind,
            )
            pending = Unnormed(result, layer.ffn_norm, statistics, x[l + 1])
        if not pre_norm:
            self._take_norm(pending)
        if not again:
            self._remember(x, t)

    def first_query(self, record: Record, x_BD: Tensor, query_BX: Tensor) -> None:
        """Compute layer 1's queries of a step into ``query_BX``; in a block those of all steps are computed before."""
        layer, taken = self.layers[0], Unnormed(x_BD)
        if self.pre_norm:
            taken = Unnormed(x_BD, layer.attn_norm, record.statistics["attn"][:, 0, 0])
        self._normed_product(taken, layer.query, query_BX)

    def _attend(self, attended: AttendedSlots, **results: Tensor) -> None:
        """Attention; see ``attention.attend``."""
        self.launcher.attend(attention.attend, attended, **results, **self.parts._asdict())

    def _normed_product(self, taken: Unnormed, affine: Affine, out: Tensor, *, relu: bool = False) -> None:
        """A sublayer's first linear map, to ``out``."""
        norm, N, D = taken.norm, out.shape[-1], self.sizes.D
        mean, rstd = (None, None) if norm is None else taken.statistics_2B
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
        residual: Tensor,
        result: Tensor,
        *,
        keep_out: tuple[Tensor | None, float],
        keep_in: tuple[Tensor | None, float] = (None, 1.0),
        kind: int = NUMBERS["relu"],
    ) -> None:
        """A sublayer's last linear map with what is around it: ``result = residual + dropout(f(a) Wᵀ + b)``.

        Args:
            keep_out, keep_in: dropout of the map's result and of its input; see ``keep_of``.
            kind: the number of the activation f; of a ReLU's result and of attention nothing is computed.
        """
        D, inner = self.sizes.D, a.shape[-1]
        self.launcher.product(
            products.product_residual,
            D,
            inner,
            a=a,
            weight=affine.weight,
            bias=affine.bias,
            residual=residual,
            out=result,
            keep_in=keep_in[0],
            keep_out=keep_out[0],
            N=D,
            scale_in=keep_in[1],
            scale_out=keep_out[1],
            INNER=inner,
            KIND=kind,
        )

    def _take_norm(self, pending: Unnormed) -> None:
        """Take a norm that no product is going to take."""
        mean, rstd = pending.statistics_2B
        self.launcher.rows(
            products.norm_rows,
            x=pending.x_BD,
            norm_weight=pending.norm.weight,
            norm_bias=pending.norm.bias,
            out=pending.result_BD,
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
        log_masks=log_masks(weights.spans, s.S, block.wide),
        reaches=block.reaches,
        encoder=block.encoder,
        dropouts=inputs.dropouts,
        age_TB=None if inputs.age_TB is None else inputs.age_TB.to(torch.int32).contiguous(),
    )


class BlockKernels:
    """A block's kernels. (It does not hold the block, which holds it.)"""

    def __init__(self, block: Block):
        self.slots = slots_of_block(block)
        self.steps = StepKernels(block.room, block.weights.layers, block.inputs.options, self.slots, block.sizes.S)

    def forward(self, block: Block, record: Record, first: int, last: int, again: bool) -> None:
        """Run some steps; see ``Loop.forward_steps``."""
        queries_TBX, n = torch.stack(list(block.first_queries(first, last))), last - first
        has_all = record.steps >= n
        for i in range(n):
            t = first + i
            x_BD, at = block.inputs.x_TBD[t], i if has_all else 0
            self.steps.run(record, at, t, x_BD=x_BD, first_query_BX=queries_TBX[i], again=again)
            if not has_all:
                block.out_TBD[t].copy_(record.x[-1, 0])
        if has_all:
            record.q[:n, 0] = queries_TBX
        if has_all and not again:
            block.out_TBD[first:last] = record.x[-1, :n]
