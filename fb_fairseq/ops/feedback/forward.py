"""The fast step loop, forward: the mathematics of ``feedback_reference`` in buffers that are made once a block.

Rows are steps and streams, step by step: R = steps x B. Only what is sequential is in the loop; nothing is
concatenated: a view of the last slots slides over keys and values. Shape suffixes: see ``fb_fairseq/ops/__init__.py``;
here

    R  rows (steps x B)             G  B x H
    X  H x E                        I  sets of keys and values: one, or one a layer
"""

from typing import List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from fb_fairseq.ops.attention import span_terms
from fb_fairseq.ops.buffers import Buffers
from fb_fairseq.ops.fallbacks import attention_kernels
from fb_fairseq.ops.feedback.types import EncoderContext, FeedbackDropouts, FeedbackOptions, FeedbackWeights
from fb_fairseq.ops.layers import ACTIVATIONS, Affine, Dropout, at_least_fp32, dropout, layer_norm, linear


class Record:
    """Activations of some steps, for the backward pass. What belongs to an attention is by step and layer, so that steps
    and layers are one dimension of its products.

    p is aligned by distance: column S - d for distance d; what a step does not reach is zero.
    """

    def __init__(self, block: "Block", steps: int):
        b = block
        new, half, fp32 = b.new, b.new_half, at_least_fp32(b.x[:0]).dtype
        L, B, D, X = b.L, b.B, b.D, b.H * b.E
        self.x_NTBD = new(L + 1, steps, B, D)
        self.attended_x_LTBD = new(L, steps, B, D)  # after self-attention
        self.q_TLBX, self.a_TLBX = half(steps, L, B, X), half(steps, L, B, X)
        self.p_TLGS = (b.buffers.zeros if b.ragged else b.buffers.empty)(steps, L, b.G, b.S, dtype=fp32)
        self.hidden_LTBF = half(L, steps, B, b.F)  # after a ReLU, before any other activation
        if not b.options.normalize_before:
            self.attention_sum_LTBD, self.ffn_sum_LTBD = new(L, steps, B, D), new(L, steps, B, D)
        if b.cross:
            self.crossed_x_LTBD = new(L, steps, B, D)  # after attention to the encoder
            self.cross_q_TLBX, self.cross_a_TLBX = half(steps, L, B, X), half(steps, L, B, X)
            self.cross_p_TLGC = b.buffers.empty(steps, L, b.G, b.cross_slots, dtype=fp32)
            if not b.options.normalize_before:
                self.cross_sum_LTBD = new(L, steps, B, D)
        self.views = Views(vars(self), block)


class Views:
    """Tensors by step and layer: ``views.q[t][l]``. Made all at once, because a view made in Python costs as much time as
    a small product. Attention's vectors are also there by head, [G, 1, E].
    """

    def __init__(self, tensors: dict, block: "Block"):
        for name, x in tensors.items():
            short, _, shape = name.rpartition("_")
            if "T" not in shape or shape[0] in "IK" or shape.endswith("W"):
                continue
            setattr(self, short, nested(x, shape.startswith("TL")))
            if shape == "TLBX":
                setattr(self, f"{short}_heads", nested(x.view(*x.shape[:2], block.G, 1, block.E), True))


def nested(x: Tensor, steps_first: bool) -> List[Sequence[Tensor]]:
    """``[t][l]``: the views of [T, L, …] or [L, T, …]."""
    if not x.is_contiguous():
        by_step = x if steps_first else x.transpose(0, 1)
        return [step.unbind(0) for step in by_step.unbind(0)]
    flat = x.flatten(0, 1).unbind(0)
    T, L = x.shape[:2] if steps_first else x.shape[1::-1]
    return [flat[t * L : (t + 1) * L] if steps_first else flat[t::T] for t in range(T)]


class Windows:
    """The slots that each step of a block reaches, of one set of keys and values, and a layer's reach.

    Lists by step of views: ``keys_GnE``, ``values_GnE`` and their transposes; ``n`` is the number of slots.
    """

    def __init__(self, keys_GCE: Tensor, values_GCE: Tensor, carried: int, steps: int, reach: int):
        self.n = [min(carried + t, reach) for t in range(steps)]
        short = max(0, min(steps, reach - carried))  # the first steps reach all there is
        for name, slots_GCE in (("keys", keys_GCE), ("values", values_GCE)):
            transposed = [slots_GCE[:, : carried + t].transpose(1, 2) for t in range(short)]
            if short < steps:
                first = carried + short - reach
                transposed += slots_GCE[:, first : carried + steps - 1].unfold(1, reach, 1).unbind(1)
            setattr(self, f"{name}_GEn", transposed)
            setattr(self, f"{name}_GnE", [x.transpose(1, 2) for x in transposed])


class CrossContext(NamedTuple):
    keys_GCE: Tensor
    values_GCE: Tensor
    padding_BC: Optional[Tensor]
    padding_G1C: Optional[Tensor]


class Block:
    """A block's inputs, weights and memory. See ``feedback_reference.feedback_block`` for the arguments."""

    def __init__(
        self,
        x_TBD: Tensor,
        memory_KCBD: Tensor,
        weights: FeedbackWeights,
        options: FeedbackOptions,
        dropouts: FeedbackDropouts,
        active: Sequence[bool],
        encoder: Sequence[EncoderContext],
        reach_TB: Optional[Tensor],
        dtype: torch.dtype,
    ):
        self.x, self.carried_KCBD, self.options, self.dropouts, self.dtype = (
            x_TBD,
            memory_KCBD,
            options,
            dropouts,
            dtype,
        )
        self.weights, self.active = weights, active
        self.T, self.B, self.D = x_TBD.shape
        self.L, self.H = len(weights.layers), options.heads
        self.E = weights.layers[0].query.weight.shape[0] // self.H
        self.F = weights.layers[0].fc1.weight.shape[0]
        self.K, self.C = memory_KCBD.shape[:2]
        self.S = min(options.span, max(1, self.C + self.T - 1))  # as far as a step of this block can reach
        self.G, self.I, self.scale = self.B * self.H, max(self.K, len(weights.projections)), self.E**-0.5
        # Which memory, and which projection, each set of keys and values is made of.
        self.memory_of = [i if self.K > 1 else 0 for i in range(self.I)]
        self.projection_of = [i if len(weights.projections) > 1 else 0 for i in range(self.I)]
        self.reaches = [
            self.S if layer.span_mask_HS is None else min(self.S, layer.span_mask_HS.shape[1])
            for layer in weights.layers
        ]
        # Some steps reach fewer than S slots.
        self.ragged = self.C < self.S or min(self.reaches) < self.S or not all(active)
        self.mix_KN = weights.mix_KN.to(x_TBD.dtype)
        self.layers = [self._cast_layer(layer) for layer in weights.layers]
        self.kv = [
            self._cast(Affine(torch.cat([p.key.weight, p.value.weight]), joined_bias(p))) for p in weights.projections
        ]
        self.key_positions, self.value_positions = (
            None if table is None else table[: self.S].flip(0).to(dtype) for table in weights.positions
        )
        self.spans = [
            None if layer.span_mask_HS is None else span_terms(layer.span_mask_HS[:, : self.S].flip(1))
            for layer in weights.layers
        ]
        self.reach_TB, self.far_TBS = reach_TB, None
        if reach_TB is not None:  # distances of the columns
            self.far_TBS = torch.arange(self.S, 0, -1, device=x_TBD.device) > reach_TB[..., None]
        self.cross = bool(encoder)
        self.encoder = [
            CrossContext(
                *(slots.to(dtype).permute(1, 2, 0, 3).reshape(self.G, -1, self.E) for slots in context[:2]),
                context.padding_BC,
                context.padding_BC
                if context.padding_BC is None
                else context.padding_BC.repeat_interleave(self.H, 0)[:, None],
            )
            for context in encoder
        ]
        self.cross_slots = self.encoder[0].keys_GCE.shape[1] if encoder else 0
        self.encoder_dtype = encoder[0].keys_CBHE.dtype if encoder else None
        # Slots: the carried ones, then one a step.
        self.buffers = Buffers(x_TBD.device)
        slots = (self.I, self.G, self.C + self.T, self.E)
        self.keys_IGCE, self.values_IGCE = (self.buffers.empty(*slots, dtype=dtype) for _ in range(2))
        self.memory_KTBD = x_TBD.new_empty(self.K, self.T, self.B, self.D)
        for slots in pieces(self.C, self.B):
            self.project(memory_KCBD[:, slots].flatten(1, 2), slots.start, slots.stop - slots.start)
        self.kernels = attention_kernels(options.kernel, x_TBD.device)
        self.x_steps, self.relu = x_TBD.unbind(0), options.activation == "relu"
        self.drops = any(mask is not None for mask in dropouts)

    def new(self, *shape, dtype=None) -> Tensor:
        """A buffer; of zeros where layers may be left out."""
        make = self.buffers.empty if all(self.active) else self.buffers.zeros
        return make(*shape, dtype=dtype or self.x.dtype)

    def new_half(self, *shape) -> Tensor:
        """The same in the type that is computed in."""
        return self.new(*shape, dtype=self.dtype)

    def _cast(self, affine: Affine) -> Affine:
        return Affine(*(None if x is None else x.to(self.dtype) for x in affine))

    def _cast_layer(self, layer):
        cross = layer.cross
        if cross is not None:
            cross = cross._replace(query=self._cast(cross.query), out=self._cast(cross.out))
        return layer._replace(
            query=self._cast(layer.query),
            out=self._cast(layer.out),
            fc1=self._cast(layer.fc1),
            fc2=self._cast(layer.fc2),
            cross=cross,
        )

    def project(self, memory_KRD: Tensor, slot: int, steps: int) -> None:
        """Keys and values of memories [K, steps x B, D], to the slots from ``slot`` on."""
        for i in range(self.I):
            projection = self.weights.projections[self.projection_of[i]]
            normed = layer_norm(memory_KRD[self.memory_of[i]], projection.norm).to(self.dtype)
            kv = linear(normed, self.kv[self.projection_of[i]]).view(steps, self.B, 2, self.H, self.E)
            for slots_GCE, new in ((self.keys_IGCE[i], kv[:, :, 0]), (self.values_IGCE[i], kv[:, :, 1])):
                slots_GCE.view(self.B, self.H, -1, self.E)[:, :, slot : slot + steps] = new.permute(1, 2, 0, 3)

    def run(self, keep: bool) -> Tuple[Tensor, Optional[Record], Optional[Tensor]]:
        """All steps, one after the other.

        Args:
            keep: record the activations of all steps, for the backward pass.

        Returns:
            The top layer's output, the record, and the aligned attention to the encoder.
        """
        o = self.options
        record = Record(self, self.T if keep else 1)
        views, queries_TBX = record.views, self.first_queries(0, self.T)
        self.windows_of = self.windows()
        out, aligned = [], []
        for t in range(self.T):
            at = t if keep else 0
            self.step(views, at, t, queries_TBX[t])
            if not keep:
                out.append(views.x[at][-1].clone())
            memory_KBD = (self.mix_KN @ record.x_NTBD[:, at].flatten(1)).view(self.K, self.B, self.D)
            self.memory_KTBD[:, t] = memory_KBD
            if t + 1 < self.T:
                self.project(memory_KBD, self.C + t, 1)
            if o.alignment_layer is not None and self.cross:
                weights_BHC = record.cross_p_TLGC[at, o.alignment_layer].view(self.B, self.H, -1)
                aligned.append(weights_BHC[:, : o.alignment_heads].mean(1).to(self.dtype))
        del self.windows_of  # they would keep the slots
        out_TBD = record.x_NTBD[-1].clone() if keep else torch.stack(out)
        return out_TBD, record if keep else None, torch.stack(aligned, 1) if aligned else None

    def first_queries(self, first: int, last: int) -> Sequence[Tensor]:
        """Layer 1's queries of some steps: they depend on the embeddings alone."""
        layer, queries = self.layers[0], []
        for steps in pieces(last - first, self.B):
            x = self.x[first + steps.start : first + steps.stop]
            x = layer_norm(x, layer.attn_norm if self.options.normalize_before else None)
            queries += linear(x.to(self.dtype), layer.query).unbind(0)
        return queries

    def windows(self) -> List[Windows]:
        """Of each layer; layers with the same reach and keys share them."""
        made = {}
        for l, reach in enumerate(self.reaches):
            i = l if self.I > 1 else 0
            if (i, reach) not in made:
                made[i, reach] = Windows(self.keys_IGCE[i], self.values_IGCE[i], self.C, self.T, reach)
        return [made[l if self.I > 1 else 0, reach] for l, reach in enumerate(self.reaches)]

    def step(self, views: Views, at: int, t: int, first_query_BX: Tensor) -> None:
        """The layers on step t, whose memory is there; to the record's step ``at``."""
        before = self.options.normalize_before
        x = views.x[at][0]
        x.copy_(self.x_steps[t])
        for l, layer in enumerate(self.layers):
            result = views.x[at][l + 1]
            if not self.active[l]:
                x = result.copy_(x)
                continue
            masks = self.masks(l, t)
            if l == 0:
                views.q[at][0].copy_(first_query_BX)
            else:
                addmm(views.q[at][l], layer_norm(x, layer.attn_norm if before else None).to(self.dtype), layer.query)
            self.attend(views, at, t, l)
            x = self.residual(
                x,
                dropout(linear(views.a[at][l], layer.out), masks.attention_residual_LTBD),
                layer.attn_norm,
                views.attended_x[at][l],
                None if before else views.attention_sum[at][l],
            )
            if self.cross:
                addmm(
                    views.cross_q[at][l],
                    layer_norm(x, layer.cross.attn_norm if before else None).to(self.dtype),
                    layer.cross.query,
                )
                self.attend_encoder(views, at, t, l)
                x = self.residual(
                    x,
                    dropout(linear(views.cross_a[at][l], layer.cross.out), masks.cross_residual_LTBD),
                    layer.cross.attn_norm,
                    views.crossed_x[at][l],
                    None if before else views.cross_sum[at][l],
                )
            hidden = views.hidden[at][l]
            addmm(hidden, layer_norm(x, layer.ffn_norm if before else None).to(self.dtype), layer.fc1)
            # A ReLU in place: its result is enough for its gradient.
            act = hidden.relu_() if self.relu else ACTIVATIONS[self.options.activation](hidden)
            x = self.residual(
                x,
                dropout(linear(dropout(act, masks.hidden_LTBF), layer.fc2), masks.ffn_residual_LTBD),
                layer.ffn_norm,
                result,
                None if before else views.ffn_sum[at][l],
            )

    @staticmethod
    def residual(x: Tensor, sublayer: Tensor, affine: Affine, result: Tensor, summed: Optional[Tensor]) -> Tensor:
        """``x + sublayer`` to ``result``; with post-norm it goes to ``summed``, and its norm to ``result``."""
        if summed is None:
            return torch.add(x, sublayer, out=result)
        return result.copy_(layer_norm(torch.add(x, sublayer, out=summed), affine))

    def masks(self, l: int, t: int) -> FeedbackDropouts:
        """A layer's dropout masks at one step."""
        return self.dropouts.at(l, t) if self.drops else NO_DROPOUTS

    def attention_dropout(self, t: int, l: int, n: int) -> Optional[Dropout]:
        """The mask of a step's attention weights [G, n]."""
        mask = self.dropouts.attention_LTBHS
        return mask and Dropout(mask.keep[l, t].view(self.G, -1)[:, -n:], mask.scale)

    def attend(self, views: Views, at: int, t: int, l: int) -> None:
        """One step's attention over the memory."""
        window = self.windows_of[l]
        n = window.n[t]
        if n == 0:
            views.a[at][l].zero_()
            return
        q_G1E, p_Gn = views.q_heads[at][l], views.p[at][l]
        if self.kernels is not None:
            out_G1E, mask = views.a_heads[at][l], self.attention_dropout(t, l, 0)
            self.kernels.attend(q_G1E[:, 0], self.slots(t, l), mask, p_Gn, out_G1E[:, 0])
            return
        if n < self.S:
            p_Gn = p_Gn[:, self.S - n :]
        positions = self.key_positions
        if positions is None:
            scores_Gn = torch.bmm(q_G1E * self.scale, window.keys_GEn[t])[:, 0]
        else:
            positions_ES = positions.t() if n == self.S else positions[self.S - n :].t()
            scores_Gn = torch.baddbmm(
                q_G1E @ positions_ES, q_G1E, window.keys_GEn[t], beta=self.scale, alpha=self.scale
            )[:, 0]
        scores_Gn = at_least_fp32(scores_Gn)
        outside = None
        if self.spans[l] is not None:
            log_mask_HS, outside_HS = self.spans[l]
            scores_Gn = (scores_Gn.view(self.B, self.H, n) + log_mask_HS[:, -n:]).view(self.G, n)
            outside = outside_HS[:, -n:]
        if self.far_TBS is not None:
            far = self.far_TBS[t, :, None, self.S - n :]
            scores_Gn.view(self.B, -1, n).masked_fill_(far, torch.finfo(scores_Gn.dtype).min)
            outside = far if outside is None else far | outside
        torch.softmax(scores_Gn, -1, out=p_Gn)
        if outside is not None:  # attention over nothing is zero
            p_Gn.view(self.B, self.H, n).masked_fill_(outside, 0)
        p_Gn = dropout(p_Gn.to(self.dtype), self.attention_dropout(t, l, n))
        torch.bmm(p_Gn[:, None], window.values_GnE[t], out=views.a_heads[at][l])
        if self.value_positions is not None:
            views.a_heads[at][l][:, 0] += p_Gn @ self.value_positions[self.S - n :]

    def slots(self, t: int, l: int):
        """What a step's queries see, for the kernels."""
        window = self.windows_of[l]
        return self.kernels.Slots(
            window.keys_GnE[t],
            window.values_GnE[t],
            self.H,
            self.key_positions,
            self.value_positions,
            None if self.spans[l] is None else self.spans[l][0],
            reach_B=None if self.reach_TB is None else self.reach_TB[t],
        )

    def encoder_slots(self, l: int):
        context = self.encoder[l]
        return self.kernels.Slots(context.keys_GCE, context.values_GCE, self.H, padding_BC=context.padding_BC)

    def attend_encoder(self, views: Views, at: int, t: int, l: int) -> None:
        """One step's attention to the encoder's output."""
        keys_GCE, values_GCE, _, padding_G1C = self.encoder[l]
        if self.kernels is not None:
            q_GE, out_GE = views.cross_q_heads[at][l][:, 0], views.cross_a_heads[at][l][:, 0]
            self.kernels.attend(q_GE, self.encoder_slots(l), self.cross_dropout(t, l), views.cross_p[at][l], out_GE)
            return
        scores_G1C = at_least_fp32(torch.bmm(views.cross_q_heads[at][l] * self.scale, keys_GCE.transpose(1, 2)))
        if padding_G1C is not None:
            scores_G1C.masked_fill_(padding_G1C, float("-inf"))
        p_GC = views.cross_p[at][l]
        torch.softmax(scores_G1C[:, 0], -1, out=p_GC)
        p_GC = dropout(p_GC.to(self.dtype), self.cross_dropout(t, l))
        torch.bmm(p_GC[:, None], values_GCE, out=views.cross_a_heads[at][l])

    def cross_dropout(self, t: int, l: int) -> Optional[Dropout]:
        mask = self.dropouts.cross_LTBHC
        return mask and Dropout(mask.keep[l, t].view(self.G, -1), mask.scale)


NO_DROPOUTS = FeedbackDropouts()


def pieces(steps: int, streams: int, rows: int = 512) -> List[slice]:
    """Slices of steps with about so many rows: enough for a product, and no new memory for each."""
    size = max(1, rows // streams)
    return [slice(first, min(first + size, steps)) for first in range(0, steps, size)]


def joined_bias(projection) -> Optional[Tensor]:
    return None if projection.key.bias is None else torch.cat([projection.key.bias, projection.value.bias])


def addmm(out: Tensor, x: Tensor, affine: Affine) -> None:
    """``x Wᵀ + b`` to ``out``."""
    if affine.bias is None:
        torch.mm(x, affine.weight.t(), out=out)
    else:
        torch.addmm(affine.bias, x, affine.weight.t(), out=out)
