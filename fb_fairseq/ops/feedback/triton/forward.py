"""The Triton loop's forward pass: five kernels per layer and step, and one for what the step leaves."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fb_fairseq.ops.attention import MASKED_FRACTION, cross_attention
from fb_fairseq.ops.feedback.block import Block, Record, Room
from fb_fairseq.ops.feedback.triton import attention, memory, products
from fb_fairseq.ops.feedback.triton.launches import AttendedSlots, Launcher, Parts, keep_of
from fb_fairseq.ops.feedback.triton.products import NUMBERS
from fb_fairseq.ops.feedback.types import EncoderContext, FeedbackDropouts, FeedbackOptions, one_or_own
from fb_fairseq.ops.layers import Affine, Layer, split_heads


class Pending(NamedTuple):
    """The sum of a residual connection whose norm the next kernel that reads it is still to take (post-norm).

    Attributes:
        summed: the norm's input [B, D].
        norm: its weights.
        result: where its result [B, D] belongs.
        mean, rstd: where its statistics [B] belong.
    """

    summed: Tensor
    norm: Affine
    result: Tensor
    mean: Tensor
    rstd: Tensor


class StepKernels:
    """The kernels of a step, in a block and in decoding. ``slots``: where a step's keys and values lie, and where it
    leaves its own: ``BlockSlots``, or those of a ring. ``most``: the most slots that a step attends to.
    """

    def __init__(
        self,
        room: Room,
        layers: Sequence[Layer],
        options: FeedbackOptions,
        dropouts: FeedbackDropouts,
        slots: Any,
        most: int,
    ):
        self.sizes, self.layers, self.dropouts, self.slots = room.sizes, layers, dropouts, slots
        self.pre_norm, self.relu = options.normalize_before, options.activation == "relu"
        self.kind, self.has_encoder = NUMBERS[options.activation], bool(room.sources)
        self.launcher = Launcher(room.sizes, room.dtype, room.wide, room.buffers.device, most)
        self.parts = Parts.made(self.launcher, room)

    def run(self, record: Record, at: int, t: int, x_BD: Tensor, first_query_BX: Tensor, again: bool = False) -> None:
        """Run the layers on step t; activations go to the record at step ``at``. Unless it runs ``again``, write what
        it leaves to its slot.
        """
        s, r = self.sizes, record
        pre_norm, last = self.pre_norm, s.L - 1
        x = r.x[:, at]
        x[0].copy_(x_BD)
        pending: Pending | None = None
        for l, layer in enumerate(self.layers):
            masks = self.dropouts
            # Attention to the memory.
            q, a = (first_query_BX, r.a[at, l]) if l == 0 else (r.q[at, l], r.a[at, l])
            if l > 0:
                self._normed_product(r, at, l, "attn", x[l], pending, layer.attn_norm, layer.query, q)
            attended = self.slots.memory(l, t)
            result = r.attended_x[l, at] if pre_norm else r.attention_sum[l, at]
            keep = keep_of(masks.attention_residual_LTBD, l, t)
            self._attend(q, attended, a, r.lse[at, l], x[l], layer.out, keep, result)
            pending = self._pending(r, at, l, "attn", result, layer.attn_norm, r.attended_x)
            x_now = r.attended_x[l, at]
            if self.has_encoder:
                cross = layer.cross
                q, a = r.cross_q[at, l], r.cross_a[at, l]
                self._normed_product(r, at, l, "cross", x_now, pending, cross.attn_norm, cross.query, q)
                result = r.crossed_x[l, at] if pre_norm else r.cross_sum[l, at]
                keep = keep_of(masks.cross_residual_LTBD, l, t)
                self._attend(q, self.slots.encoder(l, t), a, r.cross_lse[at, l], x_now, cross.out, keep, result)
                pending = self._pending(r, at, l, "cross", result, cross.attn_norm, r.crossed_x)
                x_now = r.crossed_x[l, at]
            # Feed-forward sublayer.
            hidden = r.hidden[l, at]
            self._normed_product(r, at, l, "ffn", x_now, pending, layer.ffn_norm, layer.fc1, hidden, relu=self.relu)
            result = x[l + 1] if pre_norm else r.ffn_sum[l, at]
            keep_in, keep_out = keep_of(masks.hidden_LTBF, l, t), keep_of(masks.ffn_residual_LTBD, l, t)
            self._product_residual(hidden, layer.fc2, x_now, result, keep_in, keep_out, s.F, self.kind)
            pending = self._pending(r, at, l, "ffn", result, layer.ffn_norm, r.x, 1)
            if pending is not None and l == last:
                self._take_norm(pending)
                pending = None
        if not again:
            self.slots.remember(self.launcher, x, t)

    def first_query(self, record: Record, x_BD: Tensor, query_BX: Tensor) -> None:
        """Layer 1's queries of a step; in a block those of all steps are computed before."""
        layer = self.layers[0]
        self._normed_product(record, 0, 0, "attn", x_BD, None, layer.attn_norm, layer.query, query_BX)

    def _pending(
        self, r: Record, at: int, l: int, kind: str, summed: Tensor, norm: Affine, results: Tensor, next: int = 0
    ) -> Pending | None:
        """The norm that is still to be taken after a sublayer; None with pre-norm."""
        if self.pre_norm:
            return None
        mean, rstd = r.statistics[kind][:, l, at]
        return Pending(summed, norm, results[l + next, at], mean, rstd)

    def _normed_product(
        self,
        r: Record,
        at: int,
        l: int,
        kind: str,
        x: Tensor,
        pending: Pending | None,
        norm: Affine,
        affine: Affine,
        out: Tensor,
        relu: bool = False,
    ) -> None:
        """A sublayer's first linear map, after its norm, or after the norm that is pending."""
        D, N = self.sizes.D, out.shape[-1]
        taken: Affine | None = None
        normed = mean = rstd = None
        if self.pre_norm:
            taken = norm
            mean, rstd = r.statistics[kind][:, l, at]
        elif pending is not None:
            x, taken, normed, mean, rstd = pending
        self.launcher.product(
            products.normed_product,
            N,
            D,
            x=x,
            norm_weight=taken and taken.weight,
            norm_bias=taken and taken.bias,
            weight=affine.weight,
            bias=affine.bias,
            out=out,
            normed=normed,
            mean_out=mean,
            rstd_out=rstd,
            N=N,
            D=D,
            RELU=relu,
        )

    def _attend(
        self,
        q: Tensor,
        attended: AttendedSlots,
        a: Tensor,
        lse: Tensor,
        residual: Tensor,
        out: Affine,
        keep: tuple[Tensor | None, float],
        result: Tensor,
    ) -> None:
        """Attention, its output projection and the residual connection."""
        self.launcher.attend(attention.attend, attended, q=q, out=a, lse=lse, **self.parts._asdict())
        self._product_residual(a, out, residual, result, (None, 1.0), keep, self.sizes.X, 0)

    def _product_residual(
        self,
        a: Tensor,
        affine: Affine,
        residual: Tensor,
        result: Tensor,
        keep_in: tuple[Tensor | None, float],
        keep_out: tuple[Tensor | None, float],
        inner: int,
        kind: int,
    ) -> None:
        """A sublayer's last linear map with what is around it."""
        self.launcher.product(
            products.product_residual,
            self.sizes.D,
            inner,
            a=a,
            weight=affine.weight,
            bias=affine.bias,
            residual=residual,
            out=result,
            keep_in=keep_in[0],
            keep_out=keep_out[0],
            N=self.sizes.D,
            scale_in=keep_in[1],
            scale_out=keep_out[1],
            K=inner,
            KIND=kind,
        )

    def _take_norm(self, pending: Pending) -> None:
        """Take a norm that no product is going to take."""
        self.launcher.rows(
            products.norm_rows,
            x=pending.summed,
            norm_weight=pending.norm.weight,
            norm_bias=pending.norm.bias,
            out=pending.result,
            mean_out=pending.mean,
            rstd_out=pending.rstd,
        )


class BlockSlots:
    """A block's slots, as kernels read and write them. (It does not hold the block, which holds it.)"""

    def __init__(self, block: Block):
        weights, projections, inputs = block.weights, block.weights.projections, block.inputs
        self.sizes, self.reaches, self.dropouts = block.sizes, block.reaches, inputs.dropouts
        self.keys_IGCE, self.values_IGCE = block.slots.keys_IGCE, block.slots.values_IGCE
        self.memory_KTBD, self.encoder_slots = block.memory_KTBD, block.encoder
        self.mix_KA = weights.mix_KA.to(block.wide).contiguous()
        self.kv_weight = torch.stack([affine.weight for affine in weights.key_values])
        has_bias, has_norm = weights.key_values[0].bias is not None, projections[0].norm is not None
        self.kv_bias = torch.stack([affine.bias for affine in weights.key_values]) if has_bias else None
        self.kv_norm = tuple(
            torch.stack([projection.norm[i] for projection in projections]) if has_norm else None for i in range(2)
        )
        self.positions = tuple(
            None if x is None else x.contiguous() for x in (weights.key_positions_SE, weights.value_positions_SE)
        )
        self.log_mask_LHS = span_table(block)
        self.age_TB = None if inputs.age_TB is None else inputs.age_TB.to(torch.int32).contiguous()
        self.padding = padding_bytes(inputs.encoder)

    def memory(self, l: int, t: int) -> AttendedSlots:
        """The slots that layer l attends to at step t."""
        s = self.sizes
        n = min(s.C + t, self.reaches[l])
        i = one_or_own(l, s.I)
        keep, scale = keep_of(self.dropouts.attention_LTBHS, l, t)
        return AttendedSlots(
            self.keys_IGCE[i],
            self.values_IGCE[i],
            n,
            s.C + t - n,
            self.positions,
            None if self.log_mask_LHS is None else self.log_mask_LHS[l],
            None if self.age_TB is None else self.age_TB[t],
            None,
            None if keep is None else keep.view(s.G, -1),
            scale,
        )

    def encoder(self, l: int, t: int) -> AttendedSlots:
        """The encoder's output, as layer l attends to it at step t."""
        keys, values = (x.contiguous() for x in self.encoder_slots[l][:2])
        keep, scale = keep_of(self.dropouts.cross_LTBHC, l, t)
        return AttendedSlots(
            keys,
            values,
            keys.shape[1],
            0,
            padding=self.padding,
            keep=None if keep is None else keep.view(self.sizes.G, -1),
            keep_scale=scale,
        )

    def remember(self, launcher: Launcher, x_ABD: Tensor, t: int) -> None:
        """Merge a step's representations, and write its keys and values to its slot."""
        s = self.sizes
        launcher.product(
            memory.remember,
            2 * s.X,
            s.D,
            sets=s.I,
            x=x_ABD,
            mix=self.mix_KA,
            norm_weight=self.kv_norm[0],
            norm_bias=self.kv_norm[1],
            key_weight=self.kv_weight,
            value_weight=self.kv_weight[:, s.X :],
            key_bias=self.kv_bias,
            value_bias=None if self.kv_bias is None else self.kv_bias[:, s.X :],
            memory=self.memory_KTBD[:, t],
            keys=self.keys_IGCE,
            values=self.values_IGCE,
            seen=None,
            x_layer=x_ABD.stride(0),
            memory_stride=self.memory_KTBD.stride(0),
            weight_stride=self.kv_weight.stride(0),
            bias_stride=2 * s.X,
            slot=s.C + t,
            slots=self.keys_IGCE.shape[2],
            A=s.L + 1,
            K=s.K,
            PROJECTIONS=len(self.kv_weight),
            D=s.D,
            H=s.H,
            E=s.E,
        )


class BlockKernels:
    """A block's kernels. (It does not hold the block, which holds it.)"""

    def __init__(self, block: Block):
        inputs, self.slots = block.inputs, BlockSlots(block)
        self.steps = StepKernels(
            block.room, block.weights.layers, inputs.options, inputs.dropouts, self.slots, block.sizes.S
        )

    def forward(self, block: Block, record: Record, first: int, last: int, again: bool) -> None:
        """Run some steps; see ``Loop.forward_steps``."""
        queries_TBX, n = torch.stack(list(block.first_queries(first, last))), last - first
        has_all = record.steps >= n
        for i in range(n):
            t = first + i
            self.steps.run(record, i if has_all else 0, t, block.inputs.x_TBD[t], queries_TBX[i], again)
            if not has_all:
                block.out_TBD[t].copy_(record.x[-1, 0])
        if has_all:
            record.q[:n, 0] = queries_TBX
        if has_all and not again:
            block.out_TBD[first:last] = record.x[-1, :n]


def padding_bytes(encoder: Sequence) -> Tensor | None:
    """An encoder's padding as bytes."""
    padding_BC = encoder[0].padding_BC if encoder else None
    return None if padding_BC is None else padding_BC.contiguous().view(torch.uint8)


def span_table(block: Block) -> Tensor | None:
    """The layers' span masks [L, H, S]: what a layer does not reach is a very low number."""
    s, spans = block.sizes, block.weights.spans
    if all(span is None for span in spans):
        return None
    lowest = torch.finfo(block.wide).min * MASKED_FRACTION
    table = torch.full((s.L, s.H, s.S), lowest, dtype=block.wide, device=block.inputs.x_TBD.device)
    for l, span in enumerate(spans):
        if span is None:
            table[l] = 0
        else:
            table[l, :, s.S - span.log_mask_HS.shape[1] :] = span.log_mask_HS
    return table


def aligned_weights(q_BX: Tensor, encoder: EncoderContext, options: FeedbackOptions) -> Tensor:
    """The attention [B, C] of a layer's queries to the encoder, averaged over heads."""
    keys, values = (x.to(q_BX.dtype) for x in encoder[:2])
    _, weights_BHC = cross_attention(split_heads(q_BX, options.heads), keys, values, encoder.padding_BC)
    return weights_BHC[:, : options.alignment_heads].mean(1)
