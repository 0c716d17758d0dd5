"""A decoding step of Triton kernels, on a ring whose position is on the device.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

from typing import NamedTuple, Optional, Sequence

import torch
from torch import Tensor

from fb_fairseq.ops.attention import Positions, span_terms
from fb_fairseq.ops.buffers import Buffers
from fb_fairseq.ops.feedback.cuda_graphs.steps import hypotheses
from fb_fairseq.ops.feedback.decoding.ring import MemoryRing
from fb_fairseq.ops.feedback.torch.block import BlockInputs, Sizes
from fb_fairseq.ops.feedback.triton import memory
from fb_fairseq.ops.feedback.triton.activations import NUMBERS
from fb_fairseq.ops.feedback.triton.forward import TritonBlock, TritonRecord
from fb_fairseq.ops.feedback.triton.launches import Launcher, Source, contiguous
from fb_fairseq.ops.feedback.types import (
    EncoderContext,
    FeedbackDropouts,
    FeedbackOptions,
    FeedbackWeights,
    StepOutput,
    one_or_own,
)
from fb_fairseq.ops.layers import at_least_fp32


class StepWeights(NamedTuple):
    """What the kernels of a block's step read of its weights; here the parameters themselves."""

    layers: Sequence


class StepBlock(TritonBlock):
    """A step as a block of one step, without dropout, whose slots are those of a ring."""

    def __init__(
        self,
        weights: FeedbackWeights,
        x_BD: Tensor,
        ring: MemoryRing,
        options: FeedbackOptions,
        encoder: Sequence[EncoderContext],
    ):
        B, D = x_BD.shape
        L, H = len(weights.layers), options.heads
        X, F = len(weights.layers[0].query.weight), len(weights.layers[0].fc1.weight)
        K, sets = len(weights.mix_KA), len(weights.sources)
        span = ring.span
        self.sizes = Sizes(T=1, B=B, D=D, L=L, H=H, E=X // H, F=F, K=K, C=ring.slots, S=span, I=sets)
        active = [True] * L
        self.inputs = BlockInputs(
            x_BD[None], x_BD[None], weights, options, FeedbackDropouts(), active, list(encoder), None, x_BD.dtype
        )
        self.ring, self.given, self.dtype, self.wide = ring, weights, x_BD.dtype, at_least_fp32(x_BD[:0]).dtype
        self.weights = StepWeights(weights.layers)
        self.buffers, self.scale = Buffers(x_BD.device), (X // H) ** -0.5
        self._relu, self._x_steps, self.kind = options.activation == "relu", [x_BD], NUMBERS[options.activation]
        sources = [len(context.keys_CBHE) for context in encoder[:1]]
        self.launcher = Launcher(self.sizes, self.dtype, self.wide, x_BD.device, max([ring.slots, *sources]))
        self.positions = Positions(*(None if x is None else x[:span].flip(0) for x in weights.positions))
        self.mix_KA = weights.mix_KA.to(self.wide).contiguous()
        self.spans = [layer.span_mask_HS for layer in weights.layers]
        self.hypotheses = hypotheses(B, encoder)
        # (Not ``TritonBlock.encoder``, which has as many sentences as streams.)
        self.encoder = [
            tuple(x.permute(1, 2, 0, 3).reshape(-1, x.shape[0], x.shape[3]) for x in context[:2]) for context in encoder
        ]
        self._prepare_attention()

    def step(self) -> StepOutput:
        """Run the step, and write its keys and values to the ring."""
        s, layer = self.sizes, self.weights.layers[0]
        record = TritonRecord(self, 1)
        self.memory_KBD = torch.empty(s.K, s.B, s.D, dtype=self.dtype, device=self._x_steps[0].device)
        query_BX = record.q.whole[0, 0]
        x_BD = self._x_steps[0].contiguous()
        self._normed_product(record, 0, 0, "attn", x_BD, None, layer.attn_norm, layer.query, query_BX)
        self.triton_step(record, 0, 0, query_BX)
        aligned_BC = None
        if self.encoder and self.inputs.options.alignment_layer is not None:
            aligned_BC = self._aligned(record, 0, self.inputs.options.alignment_layer)
        return StepOutput(record.x.whole[-1, 0], self.memory_KBD, aligned_BC)

    def memory_source(self, l: int, t: int) -> Source:
        """See ``TritonBlock.memory_source``."""
        s, i, ring, span_mask_HS = self.sizes, one_or_own(l, self.sizes.I), self.ring, self.spans[l]
        log_mask_HS: Optional[Tensor] = None
        if span_mask_HS is not None:
            log_mask_HS = span_terms(span_mask_HS.flip(1).to(self.wide))[0].contiguous()
        keys, values = (ring.buffer[2 * i + side].view(s.G, ring.slots, s.E) for side in range(2))
        return Source(
            keys, values, ring.slots, 0, self.positions, log_mask_HS, ring.age_B, seen_1=ring.seen_1, span=ring.span
        )

    def encoder_source(self, l: int, t: int) -> Source:
        """See ``TritonBlock.encoder_source``."""
        keys, values = self.encoder[l]
        return Source(keys, values, keys.shape[1], 0, padding=self.padding, streams=self.hypotheses)

    def _remember(self, x_ABD: Tensor, t: int) -> None:
        """See ``TritonBlock._remember``: to the ring's next slot."""
        s, ring = self.sizes, self.ring
        for i, source in enumerate(self.given.sources):
            projection = self.given.projections[source.projection]
            key_weight, key_bias = contiguous(projection.key)
            value_weight, value_bias = contiguous(projection.value)
            norm_weight, norm_bias = contiguous(projection.norm)
            self.launcher.product(
                memory.remember, 2 * s.X, s.D, x_ABD, self.mix_KA[source.memory], norm_weight, norm_bias, key_weight,
                value_weight, key_bias, value_bias, self.memory_KBD[source.memory], ring.buffer[2 * i],
                ring.buffer[2 * i + 1], ring.seen_1, s.B, x_ABD.stride(0), 0, 0, 0, ring.span, ring.slots, sets=1,
                A=s.L + 1, K=1, PROJECTIONS=1, D=s.D, H=s.H, E=s.E,
            )  # fmt: skip
