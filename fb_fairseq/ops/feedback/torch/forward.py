"""The torch loop's forward pass: the mathematics of ``reference.py``, in buffers that are made once per block.

The loop contains only what is sequential. Rows of matrices are ordered by step, then by stream. Shape suffixes: see
``fb_fairseq/ops/__init__.py``.
"""

from functools import cached_property, partial
from typing import List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from fb_fairseq.ops.buffers import Buffers
from fb_fairseq.ops.feedback.torch.block import (
    BlockInputs,
    KeyValueSlots,
    Windows,
    block_sizes,
    compute_weights,
    encoder_slots,
    pieces,
)
from fb_fairseq.ops.feedback.types import FeedbackDropouts
from fb_fairseq.ops.layers import ACTIVATIONS, Affine, Dropout, at_least_fp32, dropout, layer_norm, linear
from fb_fairseq.ops.threads import each

NO_DROPOUTS = FeedbackDropouts()


class StepTensor:
    """A tensor with a part for each step and layer.

    The views of all parts are made at once, and only if they are used, because a view made in Python costs as much time
    as a small product.

    Args:
        whole: [T, L, …] if ``steps_first``, else [L, T, …].
        heads: G and E, if the parts are vectors of all heads.
    """

    def __init__(self, whole: Tensor, steps_first: bool, heads: Optional[Tuple[int, int]] = None):
        self.whole, self._steps_first, self._heads = whole, steps_first, heads

    @cached_property
    def at(self) -> List[Sequence[Tensor]]:
        """``at[t][l]``: the part of step t and layer l."""
        return parts(self.whole, self._steps_first)

    @cached_property
    def heads(self) -> List[Sequence[Tensor]]:
        """``heads[t][l]``: a part [B, X] by head, [G, 1, E]."""
        G, E = self._heads
        return parts(self.whole.view(*self.whole.shape[:2], G, 1, E), self._steps_first)


def parts(x: Tensor, steps_first: bool) -> List[Sequence[Tensor]]:
    """``[t][l]``: the views of a tensor [T, L, …] if ``steps_first``, else [L, T, …]."""
    if not x.is_contiguous():
        by_step = x if steps_first else x.transpose(0, 1)
        return [step.unbind(0) for step in by_step.unbind(0)]
    flat = x.flatten(0, 1).unbind(0)
    T, L = x.shape[:2] if steps_first else x.shape[1::-1]
    return [flat[t * L : (t + 1) * L] if steps_first else flat[t::T] for t in range(T)]


class Record:
    """Activations of some steps, for the backward pass.

    Tensors of an attention have steps before layers, so that its matrix products can treat both as one dimension.

    Attributes:
        x: representations [A, T, B, D]: the embedding and each layer's output.
        attended_x: after self-attention [L, T, B, D]; ``crossed_x``: after attention to the encoder.
        q, a: queries and attention outputs [T, L, B, X]; ``cross_q``, ``cross_a``: the same for the encoder.
        p: attention weights before dropout [T, L, G, S], column S - d for distance d; zero where a step does not reach.
            ``cross_p`` [T, L, G, C]: the same for the encoder.
        hidden: of the feed-forward sublayer [L, T, B, F]: after a ReLU, before any other activation.
        attention_sum, cross_sum, ffn_sum: inputs of the norms of post-norm layers [L, T, B, D].

    Args:
        weights: whether attention weights are recorded: ``p`` and ``cross_p``.
    """

    def __init__(self, block: "Block", steps: int, weights: bool = True):
        s, post_norm = block.sizes, not block.inputs.options.normalize_before
        L, B, heads = s.L, s.B, (s.G, s.E)

        def by_layer(count: int, width: int, half: bool = False) -> StepTensor:
            make = block.new_half if half else block.new
            return StepTensor(make(count, steps, B, width), steps_first=False)

        def of_heads() -> StepTensor:
            return StepTensor(block.new_half(steps, L, B, s.X), steps_first=True, heads=heads)

        def by_slot(width: int, zeros: bool) -> StepTensor:
            make = block.buffers.zeros if zeros else block.buffers.empty
            return StepTensor(make(steps, L, s.G, width, dtype=block.wide), steps_first=True)

        self.x, self.attended_x = by_layer(L + 1, s.D), by_layer(L, s.D)
        self.q, self.a = of_heads(), of_heads()
        if weights:
            self.p = by_slot(s.S, zeros=block.ragged)
        self.hidden = by_layer(L, s.F, half=True)
        self.attention_sum, self.ffn_sum = (by_layer(L, s.D) if post_norm else None for _ in range(2))
        if block.encoder:
            self.crossed_x = by_layer(L, s.D)
            self.cross_q, self.cross_a = of_heads(), of_heads()
            if weights:
                self.cross_p = by_slot(block.encoder[0].keys_GCE.shape[1], zeros=False)
            self.cross_sum = by_layer(L, s.D) if post_norm else None


class Block:
    """A block's forward pass, with all that its backward pass needs except the record of activations.

    Args:
        threads: how many share what is done outside of the loop over steps.

    Attributes:
        inputs, sizes, weights: what the block is given, and its weights in the compute type.
        slots: keys and values of the carried memory and of the block's steps.
        memory_KTBD: the memories that the steps leave.
        reaches: how many steps back each layer reaches.
        ragged: some steps or layers reach fewer than S slots.
        wide: the type of softmax and of sums over steps, at least fp32.
    """

    def __init__(self, inputs: BlockInputs, threads: int = 1):
        self.inputs, self.threads = inputs, threads
        self.sizes = s = block_sizes(inputs)
        self.weights = compute_weights(inputs.weights, s.S, inputs.dtype, inputs.x_TBD.dtype)
        self.dtype, self.wide = inputs.dtype, at_least_fp32(inputs.x_TBD[:0]).dtype
        self.scale = s.E**-0.5
        spans = [layer.span_mask_HS for layer in inputs.weights.layers]
        self.reaches = [s.S if span is None else min(s.S, span.shape[1]) for span in spans]
        self.ragged = s.C < s.S or min(self.reaches) < s.S or not all(inputs.active)
        self.far_TBS = None  # columns that a stream does not reach
        if inputs.reach_TB is not None:
            distances_S = torch.arange(s.S, 0, -1, device=inputs.x_TBD.device)
            self.far_TBS = distances_S > inputs.reach_TB[..., None]
        self.encoder = [encoder_slots(context, s, self.dtype) for context in inputs.encoder]
        self.buffers = Buffers(inputs.x_TBD.device)
        self.slots = KeyValueSlots(s, self.weights, self.buffers, self.dtype)
        self.memory_KTBD = inputs.x_TBD.new_empty(s.K, s.T, s.B, s.D)
        carried = pieces(s.C, s.B, inputs.x_TBD.device)
        each([partial(self._project_carried, steps) for steps in carried], self.threads)
        self._x_steps = inputs.x_TBD.unbind(0)
        self._relu = inputs.options.activation == "relu"
        self._drops = any(mask is not None for mask in inputs.dropouts)

    def _project_carried(self, steps: slice) -> None:
        """Write keys and values of some steps of the carried memory."""
        memory_KRD = self.inputs.memory_KCBD[:, steps].flatten(1, 2)
        self.slots.project(memory_KRD, steps.start, steps.stop - steps.start)

    def new(self, *shape: int, dtype: Optional[torch.dtype] = None) -> Tensor:
        """A buffer in the embeddings' type; zeros where LayerDrop leaves parts of it unwritten."""
        make = self.buffers.empty if all(self.inputs.active) else self.buffers.zeros
        return make(*shape, dtype=dtype or self.inputs.x_TBD.dtype)

    def new_half(self, *shape: int) -> Tensor:
        """A buffer in the compute type."""
        return self.new(*shape, dtype=self.dtype)

    def run(self, keep: bool) -> Tuple[Tensor, Optional[Record], Optional[Tensor]]:
        """Run all steps, one after the other.

        Args:
            keep: record the activations of all steps for the backward pass.

        Returns:
            The top layer's output [T, B, D], the record, and the attention to the encoder [B, T, C] if one is asked
            for.
        """
        s, o = self.sizes, self.inputs.options
        record, queries_TBX = Record(self, s.T if keep else 1), self.first_queries(0, s.T)
        outputs, aligned = [], []
        for t in range(s.T):
            at = t if keep else 0
            self.step(record, at, t, queries_TBX[t])
            if not keep:
                outputs.append(record.x.at[at][-1].clone())
            memory_KBD = (self.weights.mix_KA @ record.x.whole[:, at].flatten(1)).view(s.K, s.B, s.D)
            self.memory_KTBD[:, t] = memory_KBD
            if t + 1 < s.T:
                self.slots.project(memory_KBD, s.C + t, 1)
            if o.alignment_layer is not None and self.encoder:
                weights_BHC = record.cross_p.at[at][o.alignment_layer].view(s.B, s.H, -1)
                aligned.append(weights_BHC[:, : o.alignment_heads].mean(1).to(self.dtype))
        out_TBD = record.x.whole[-1].clone() if keep else torch.stack(outputs)
        return out_TBD, record if keep else None, torch.stack(aligned, 1) if aligned else None

    def run_again(self, record: Record, first: int, last: int) -> None:
        """Compute the activations of the steps first … last - 1 again; to the record from its first step on."""
        for i, query_BX in enumerate(self.first_queries(first, last)):
            self.step(record, i, first + i, query_BX)

    @cached_property
    def windows(self) -> List[Windows]:
        """What each layer attends to at each step."""
        return self.slots.windows(self.reaches)

    def first_queries(self, first: int, last: int) -> Sequence[Tensor]:
        """Layer 1's queries [B, X] of the steps first … last - 1: they depend on the embeddings alone."""
        layer, queries = self.weights.layers[0], []
        for steps in pieces(last - first, self.sizes.B, self.inputs.x_TBD.device):
            x = self.inputs.x_TBD[first + steps.start : first + steps.stop]
            x = layer_norm(x, layer.attn_norm if self.inputs.options.normalize_before else None)
            queries += linear(x.to(self.dtype), layer.query).unbind(0)
        return queries

    def step(self, record: Record, at: int, t: int, first_query_BX: Tensor) -> None:
        """Run the layers on step t, whose slots are filled, and write its activations to the record at step ``at``."""
        pre_norm, r = self.inputs.options.normalize_before, record
        x = r.x.at[at][0]
        x.copy_(self._x_steps[t])
        for l, layer in enumerate(self.weights.layers):
            result = r.x.at[at][l + 1]
            if not self.inputs.active[l]:
                x = result.copy_(x)
                continue
            masks = self.masks(l, t)
            if l == 0:
                r.q.at[at][0].copy_(first_query_BX)
            else:
                addmm(r.q.at[at][l], self._normed(x, layer.attn_norm), layer.query)
            self._attend(r, at, t, l)
            attended = dropout(linear(r.a.at[at][l], layer.out), masks.attention_residual_LTBD)
            summed = None if pre_norm else r.attention_sum.at[at][l]
            x = add_residual(x, attended, layer.attn_norm, r.attended_x.at[at][l], summed)
            if self.encoder:
                addmm(r.cross_q.at[at][l], self._normed(x, layer.cross.attn_norm), layer.cross.query)
                self._attend_encoder(r, at, t, l)
                attended = dropout(linear(r.cross_a.at[at][l], layer.cross.out), masks.cross_residual_LTBD)
                summed = None if pre_norm else r.cross_sum.at[at][l]
                x = add_residual(x, attended, layer.cross.attn_norm, r.crossed_x.at[at][l], summed)
            hidden = r.hidden.at[at][l]
            addmm(hidden, self._normed(x, layer.ffn_norm), layer.fc1)
            # A ReLU works in place: its gradient needs its result only.
            act = hidden.relu_() if self._relu else ACTIVATIONS[self.inputs.options.activation](hidden)
            out = dropout(linear(dropout(act, masks.hidden_LTBF), layer.fc2), masks.ffn_residual_LTBD)
            x = add_residual(x, out, layer.ffn_norm, result, None if pre_norm else r.ffn_sum.at[at][l])

    def _normed(self, x: Tensor, norm: Affine) -> Tensor:
        """A sublayer's input in the compute type: normalised with pre-norm."""
        return layer_norm(x, norm if self.inputs.options.normalize_before else None).to(self.dtype)

    def masks(self, l: int, t: int) -> FeedbackDropouts:
        """A layer's dropout masks at one step."""
        return self.inputs.dropouts.at(l, t) if self._drops else NO_DROPOUTS

    def attention_dropout(self, l: int, t: int, n: int) -> Optional[Dropout]:
        """The mask [G, n] of a step's attention weights over its last n slots; all slots for n = 0."""
        mask = self.inputs.dropouts.attention_LTBHS
        return mask and Dropout(mask.keep[l, t].view(self.sizes.G, -1)[:, -n:], mask.scale)

    def cross_dropout(self, l: int, t: int) -> Optional[Dropout]:
        """The mask [G, C] of a step's attention weights over the encoder's output."""
        mask = self.inputs.dropouts.cross_LTBHC
        return mask and Dropout(mask.keep[l, t].view(self.sizes.G, -1), mask.scale)

    def _attend(self, r: Record, at: int, t: int, l: int) -> None:
        """One step's attention over the memory: weights to ``r.p``, the result to ``r.a``."""
        s, window = self.sizes, self.windows[l]
        n = window.lengths[t]
        if n == 0:
            r.a.at[at][l].zero_()
            return
        q_G1E, p_Gn, a_G1E = r.q.heads[at][l], r.p.at[at][l], r.a.heads[at][l]
        if n < s.S:
            p_Gn = p_Gn[:, s.S - n :]
        positions = self.weights.key_positions_SE
        if positions is None:
            scores_Gn = torch.bmm(q_G1E * self.scale, window.keys_GEn[t])[:, 0]
        else:
            positions_En = positions.t() if n == s.S else positions[s.S - n :].t()
            scores_Gn = torch.baddbmm(
                q_G1E @ positions_En, q_G1E, window.keys_GEn[t], beta=self.scale, alpha=self.scale
            )[:, 0]
        scores_Gn = at_least_fp32(scores_Gn)
        outside = None
        if self.weights.spans[l] is not None:
            log_mask_HS, outside_HS = self.weights.spans[l]
            scores_Gn = (scores_Gn.view(s.B, s.H, n) + log_mask_HS[:, -n:]).view(s.G, n)
            outside = outside_HS[:, -n:]
        if self.far_TBS is not None:
            far = self.far_TBS[t, :, None, s.S - n :]
            outside = far if outside is None else far | outside
        if outside is not None:  # (filled, because what is added to a score that is not a number has no effect)
            scores_Gn.view(s.B, -1, n).masked_fill_(outside, torch.finfo(scores_Gn.dtype).min)
        torch.softmax(scores_Gn, -1, out=p_Gn)
        if outside is not None:  # attention over nothing is zero
            p_Gn.view(s.B, s.H, n).masked_fill_(outside, 0)
        p_Gn = dropout(p_Gn.to(self.dtype), self.attention_dropout(l, t, n))
        torch.bmm(p_Gn[:, None], window.values_GnE[t], out=a_G1E)
        if self.weights.value_positions_SE is not None:
            a_G1E[:, 0] += p_Gn @ self.weights.value_positions_SE[s.S - n :]

    def _attend_encoder(self, r: Record, at: int, t: int, l: int) -> None:
        """One step's attention over the encoder's output."""
        keys_GCE, values_GCE, _, padding_G1C = self.encoder[l]
        q_G1E, p_GC, a_G1E = r.cross_q.heads[at][l], r.cross_p.at[at][l], r.cross_a.heads[at][l]
        mask = self.cross_dropout(l, t)
        scores_G1C = at_least_fp32(torch.bmm(q_G1E * self.scale, keys_GCE.transpose(1, 2)))
        if padding_G1C is not None:
            scores_G1C.masked_fill_(padding_G1C, float("-inf"))
        torch.softmax(scores_G1C[:, 0], -1, out=p_GC)
        torch.bmm(dropout(p_GC.to(self.dtype), mask)[:, None], values_GCE, out=a_G1E)


def add_residual(x: Tensor, sublayer: Tensor, norm: Affine, result: Tensor, summed: Optional[Tensor]) -> Tensor:
    """Write ``x + sublayer`` to ``result``; with post-norm, the sum to ``summed`` and its norm to ``result``.

    Args:
        summed: None with pre-norm.
    """
    if summed is None:
        return torch.add(x, sublayer, out=result)
    return result.copy_(layer_norm(torch.add(x, sublayer, out=summed), norm))


def addmm(out: Tensor, x: Tensor, affine: Affine) -> None:
    """Write ``x Wᵀ + b`` to ``out``."""
    if affine.bias is None:
        torch.mm(x, affine.weight.t(), out=out)
    else:
        torch.addmm(affine.bias, x, affine.weight.t(), out=out)
