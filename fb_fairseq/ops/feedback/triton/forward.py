"""The Triton loop's forward pass: five kernels per layer and step, and one for what the step leaves.

Everything that is not sequential is the torch loop's. Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

from typing import List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from fb_fairseq.ops.attention import MASKED_FRACTION
from fb_fairseq.ops.feedback.torch.block import BlockInputs
from fb_fairseq.ops.feedback.torch.forward import Block, Record, StepTensor
from fb_fairseq.ops.feedback.triton import attention, memory, products
from fb_fairseq.ops.feedback.triton.activations import NUMBERS
from fb_fairseq.ops.feedback.triton.launches import Launcher, Source, contiguous, keep_of
from fb_fairseq.ops.feedback.types import one_or_own
from fb_fairseq.ops.layers import Affine

KINDS = ("attn", "cross", "ffn")  # a layer's norms


class TritonRecord(Record):
    """Activations of some steps, without attention weights.

    Attributes:
        lse, cross_lse: logarithms of attention's sums of exponentials [T, L, G].
        statistics: of each kind of norm: mean and 1 / standard deviation of its inputs [2, L, T, B].
    """

    def __init__(self, block: "TritonBlock", steps: int):
        super().__init__(block, steps, weights=False)
        s = block.sizes
        self.lse = block.new(steps, s.L, s.G, dtype=block.wide)
        self.statistics = {kind: block.new(2, s.L, steps, s.B, dtype=block.wide) for kind in KINDS}
        if block.encoder:
            self.cross_lse = block.new(steps, s.L, s.G, dtype=block.wide)


class Pending(NamedTuple):
    """The sum of a residual connection whose norm is still to be taken (post-norm), by the next kernel that reads it.

    Attributes:
        result: where the norm's result belongs.
        mean, rstd: where its statistics belong.
    """

    summed: Tensor
    norm: Affine
    result: Tensor
    mean: Tensor
    rstd: Tensor


class TritonBlock(Block):
    """A block whose steps run in Triton kernels.

    Attributes:
        hypotheses: number of consecutive rows per sentence of the encoder.
    """

    hypotheses = 1

    def __init__(self, inputs: BlockInputs):
        super().__init__(inputs)
        s, weights = self.sizes, self.weights
        device = inputs.x_TBD.device
        self.launcher = Launcher(s, self.dtype, self.wide, device, s.S)
        self.kind = NUMBERS[inputs.options.activation]
        self.mix_KA = weights.mix_KA.to(self.wide).contiguous()
        projections = weights.projections
        self.kv_weight = torch.stack([affine.weight for affine in weights.key_values])
        has_bias = weights.key_values[0].bias is not None
        self.kv_bias = torch.stack([affine.bias for affine in weights.key_values]) if has_bias else None
        has_norm = projections[0].norm is not None
        self.kv_norm = tuple(
            torch.stack([projection.norm[i] for projection in projections]) if has_norm else None for i in range(2)
        )
        self.positions = tuple(
            None if x is None else x.contiguous() for x in (weights.key_positions_SE, weights.value_positions_SE)
        )
        self.log_mask_LHS = self._span_table()
        self.reach_TB = None if inputs.reach_TB is None else inputs.reach_TB.to(torch.int32).contiguous()
        self._prepare_attention()

    def _prepare_attention(self) -> None:
        """The encoder's padding as bytes, and buffers for parts of the attention over many slots."""
        s, encoder, splits = self.sizes, self.inputs.encoder, self.launcher.attention.splits
        self.padding = None
        self.parts = self.tops = self.totals = self.arrived = None
        if encoder and encoder[0].padding_BC is not None:
            self.padding = encoder[0].padding_BC.contiguous().view(torch.uint8)
        if splits > 1:
            self.parts = self.buffers.empty(splits, s.G, s.E, dtype=self.wide)
            self.tops, self.totals = (self.buffers.empty(splits, s.G, dtype=self.wide) for _ in range(2))
            self.arrived = self.buffers.zeros(s.G, dtype=torch.int32)

    def _span_table(self) -> Optional[Tensor]:
        """The layers' span masks [L, H, S]: what a layer does not reach is a very low number."""
        s, spans = self.sizes, self.weights.spans
        if all(span is None for span in spans):
            return None
        lowest = torch.finfo(self.wide).min * MASKED_FRACTION
        table = torch.full((s.L, s.H, s.S), lowest, dtype=self.wide, device=self.inputs.x_TBD.device)
        for l, span in enumerate(spans):
            if span is None:
                table[l] = 0
            else:
                table[l, :, s.S - span.log_mask_HS.shape[1] :] = span.log_mask_HS
        return table

    def run(self, keep: bool) -> Tuple[Tensor, Optional[TritonRecord], Optional[Tensor]]:
        """See ``Block.run``."""
        s, o = self.sizes, self.inputs.options
        record = TritonRecord(self, s.T if keep else 1)
        queries_TBX = torch.stack(list(self.first_queries(0, s.T)))
        outputs: List[Tensor] = []
        aligned: List[Tensor] = []
        for t in range(s.T):
            at = t if keep else 0
            self.triton_step(record, at, t, queries_TBX[t])
            if not keep:
                outputs.append(record.x.whole[-1, 0].clone())
            if o.alignment_layer is not None and self.encoder:
                aligned.append(self._aligned(record, at, o.alignment_layer))
        out_TBD = record.x.whole[-1].clone() if keep else torch.stack(outputs)
        if keep:
            record.q.whole[:, 0] = queries_TBX
        return out_TBD, record if keep else None, torch.stack(aligned, 1) if aligned else None

    def run_again(self, record: TritonRecord, first: int, last: int) -> None:
        """See ``Block.run_again``."""
        for i, query_BX in enumerate(self.first_queries(first, last)):
            self.triton_step(record, i, first + i, query_BX)
            record.q.whole[i, 0] = query_BX

    def _aligned(self, record: TritonRecord, at: int, layer: int) -> Tensor:
        """The attention [B, C] of a layer to the encoder at a step, averaged over heads."""
        s, n, keys_GCE = self.sizes, self.hypotheses, self.encoder[layer][0]
        q_GnE = record.cross_q.whole[at, layer].view(s.B // n, n, s.H, s.E).transpose(1, 2).flatten(0, 1)
        scores_GnC = torch.bmm(q_GnE * self.scale, keys_GCE.transpose(1, 2)).to(self.wide)
        scores_bHnC = scores_GnC.unflatten(0, (-1, s.H))
        padding_BC = self.inputs.encoder[layer].padding_BC
        if padding_BC is not None:
            scores_bHnC = scores_bHnC.masked_fill(padding_BC[:, None, None], float("-inf"))
        weights_BHC = torch.softmax(scores_bHnC, -1).transpose(1, 2).flatten(0, 1)
        return weights_BHC[:, : self.inputs.options.alignment_heads].mean(1).to(self.dtype)

    # A step.

    def triton_step(self, record: TritonRecord, at: int, t: int, first_query_BX: Tensor) -> None:
        """Run the layers on step t, and write what it leaves; activations to the record at step ``at``."""
        s, r = self.sizes, record
        pre_norm, last = self.inputs.options.normalize_before, s.L - 1
        x = r.x.whole[:, at]
        x[0].copy_(self._x_steps[t])
        pending: Optional[Pending] = None
        for l, layer in enumerate(self.weights.layers):
            if not self.inputs.active[l]:
                x[l + 1].copy_(x[l])
                continue
            masks = self.inputs.dropouts
            # Attention to the memory.
            q, a = (first_query_BX, r.a.whole[at, l]) if l == 0 else (r.q.whole[at, l], r.a.whole[at, l])
            if l > 0:
                self._normed_product(r, at, l, "attn", x[l], pending, layer.attn_norm, layer.query, q)
            source = self.memory_source(l, t)
            result = r.attended_x.whole[l, at] if pre_norm else r.attention_sum.whole[l, at]
            keep = keep_of(masks.attention_residual_LTBD, l, t)
            self._attend(q, source, a, r.lse[at, l], x[l], layer.out, keep, result)
            pending = self._pending(r, at, l, "attn", result, layer.attn_norm, r.attended_x)
            x_now = r.attended_x.whole[l, at]
            if self.encoder:
                cross = layer.cross
                q, a = r.cross_q.whole[at, l], r.cross_a.whole[at, l]
                self._normed_product(r, at, l, "cross", x_now, pending, cross.attn_norm, cross.query, q)
                result = r.crossed_x.whole[l, at] if pre_norm else r.cross_sum.whole[l, at]
                keep = keep_of(masks.cross_residual_LTBD, l, t)
                self._attend(q, self.encoder_source(l, t), a, r.cross_lse[at, l], x_now, cross.out, keep, result)
                pending = self._pending(r, at, l, "cross", result, cross.attn_norm, r.crossed_x)
                x_now = r.crossed_x.whole[l, at]
            # Feed-forward sublayer.
            hidden = r.hidden.whole[l, at]
            self._normed_product(r, at, l, "ffn", x_now, pending, layer.ffn_norm, layer.fc1, hidden, relu=self._relu)
            result = x[l + 1] if pre_norm else r.ffn_sum.whole[l, at]
            keep_in, scale_in = keep_of(masks.hidden_LTBF, l, t)
            keep_out, scale_out = keep_of(masks.ffn_residual_LTBD, l, t)
            self._product_residual(
                hidden, layer.fc2, x_now, result, (keep_in, scale_in), (keep_out, scale_out), s.F, self.kind
            )
            pending = self._pending(r, at, l, "ffn", result, layer.ffn_norm, r.x, 1)
            if pending is not None and (l == last or not self.inputs.active[l + 1]):
                self._take_norm(pending)
                pending = None
        self._remember(x, t)

    def memory_source(self, l: int, t: int) -> Source:
        """What layer l attends to at step t."""
        s = self.sizes
        n = min(s.C + t, self.reaches[l])
        i = one_or_own(l, s.I)
        keep, scale = keep_of(self.inputs.dropouts.attention_LTBHS, l, t)
        return Source(
            self.slots.keys_IGCE[i],
            self.slots.values_IGCE[i],
            n,
            s.C + t - n,
            self.positions,
            None if self.log_mask_LHS is None else self.log_mask_LHS[l],
            None if self.reach_TB is None else self.reach_TB[t],
            None,
            None if keep is None else keep.view(s.G, -1),
            scale,
        )

    def encoder_source(self, l: int, t: int) -> Source:
        """The encoder's output, as layer l attends to it at step t."""
        keys, values = (x.contiguous() for x in self.encoder[l][:2])
        keep, scale = keep_of(self.inputs.dropouts.cross_LTBHC, l, t)
        return Source(
            keys,
            values,
            keys.shape[1],
            0,
            padding=self.padding,
            keep=None if keep is None else keep.view(self.sizes.G, -1),
            keep_scale=scale,
        )

    def _pending(
        self,
        r: TritonRecord,
        at: int,
        l: int,
        kind: str,
        summed: Tensor,
        norm: Affine,
        results: StepTensor,
        next: int = 0,
    ) -> Optional[Pending]:
        """What is still to be done after a sublayer: nothing with pre-norm."""
        if self.inputs.options.normalize_before:
            return None
        mean, rstd = r.statistics[kind][:, l, at]
        return Pending(summed, norm, results.whole[l + next, at], mean, rstd)

    def _normed_product(
        self,
        r: TritonRecord,
        at: int,
        l: int,
        kind: str,
        x: Tensor,
        pending: Optional[Pending],
        norm: Affine,
        affine: Affine,
        out: Tensor,
        relu: bool = False,
    ) -> None:
        """A sublayer's first linear map, after its norm, or after the norm that is pending."""
        D, N = self.sizes.D, out.shape[-1]
        normed = mean = rstd = None
        norm_weight = norm_bias = None
        if self.inputs.options.normalize_before:
            norm_weight, norm_bias = contiguous(norm)
            mean, rstd = r.statistics[kind][:, l, at]
        elif pending is not None:
            x, normed, mean, rstd = pending.summed, pending.result, pending.mean, pending.rstd
            norm_weight, norm_bias = contiguous(pending.norm)
        weight, bias = contiguous(affine)
        self.launcher.product(
            products.normed_product, N, D, x, norm_weight, norm_bias, weight, bias, out, normed, mean, rstd,
            self.sizes.B, N, D=D, RELU=relu,
        )  # fmt: skip

    def _attend(
        self,
        q: Tensor,
        source: Source,
        a: Tensor,
        lse: Tensor,
        residual: Tensor,
        out: Affine,
        keep: Tuple[Optional[Tensor], float],
        result: Tensor,
    ) -> None:
        """Attention, its output projection and the residual connection."""
        after = a, lse, self.parts, self.tops, self.totals, self.arrived
        self.launcher.attend(attention.attend, source, (q,), after)
        self._product_residual(a, out, residual, result, (None, 1.0), keep, self.sizes.X, 0)

    def _product_residual(
        self,
        a: Tensor,
        affine: Affine,
        residual: Tensor,
        result: Tensor,
        keep_in: Tuple[Optional[Tensor], float],
        keep_out: Tuple[Optional[Tensor], float],
        inner: int,
        kind: int,
    ) -> None:
        """A sublayer's last linear map with what is around it."""
        s = self.sizes
        weight, bias = contiguous(affine)
        self.launcher.product(
            products.product_residual, s.D, inner, a, weight, bias, residual, result, keep_in[0], keep_out[0], s.B, s.D,
            keep_in[1], keep_out[1], K=inner, KIND=kind,
        )  # fmt: skip

    def _take_norm(self, pending: Pending) -> None:
        """Take a norm that no product is going to take."""
        weight, bias = contiguous(pending.norm)
        self.launcher.rows(
            products.norm_rows, pending.summed, weight, bias, pending.result, pending.mean, pending.rstd,
            self.sizes.B, D=self.sizes.D,
        )  # fmt: skip

    def _remember(self, x_ABD: Tensor, t: int) -> None:
        """Merge a step's representations, and write its keys and values to its slot."""
        s = self.sizes
        self.launcher.product(
            memory.remember, 2 * s.X, s.D, x_ABD, self.mix_KA, *self.kv_norm, self.kv_weight, self.kv_weight[:, s.X :],
            self.kv_bias, None if self.kv_bias is None else self.kv_bias[:, s.X :], self.memory_KTBD[:, t],
            self.slots.keys_IGCE, self.slots.values_IGCE, None, s.B, x_ABD.stride(0), self.memory_KTBD.stride(0),
            self.kv_weight.stride(0), 2 * s.X, s.C + t, self.slots.keys_IGCE.shape[2], sets=s.I, A=s.L + 1, K=s.K,
            PROJECTIONS=len(self.kv_weight), D=s.D, H=s.H, E=s.E,
        )  # fmt: skip
