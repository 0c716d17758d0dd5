"""What the stacks of layers share."""

from functools import partial
from typing import List, Optional, Tuple

import torch
import torch.nn as nn
from torch import Tensor

from fb_fairseq.modules.layer import TransformerLayer, affine
from fb_fairseq.modules.options import TransformerOptions
from fb_fairseq.modules.positions import RelativePositions
from fb_fairseq.modules.ring import MemoryRing
from fb_fairseq.modules.span import MARGIN, reaches
from fb_fairseq.modules.state import StreamState
from fb_fairseq.ops.feedback.reference import feedback_step
from fb_fairseq.ops.feedback.types import FeedbackOptions, FeedbackWeights
from fb_fairseq.ops.layers import Dropout, draw_dropout, dropout, layer_norm, project_query


def attention_parameters(stack: nn.Module) -> List[nn.Parameter]:
    """The parameters of self-attention, its norms, the memory and positions: of a stack, or of fairseq's decoder."""
    parts = [part for layer in stack.layers for part in (layer.self_attn, layer.self_attn_layer_norm)]
    parts += [part for part in (getattr(stack, name, None) for name in ("memory", "positions")) if part is not None]
    return [parameter for part in parts for parameter in part.parameters()]


def touch_attention(stack: nn.Module, out_TBD: Tensor) -> Tensor:
    """The same outputs. A block of one step may use neither what it leaves nor, without a past, its attention;
    DistributedDataParallel wants a gradient of every parameter."""
    if len(out_TBD) > 1 or not torch.is_grad_enabled():
        return out_TBD
    return out_TBD + 0 * sum(parameter.float().sum() for parameter in attention_parameters(stack)).to(out_TBD.dtype)


def draw_active_layers(stack: nn.Module, options: TransformerOptions) -> List[bool]:
    """LayerDrop (Fan et al. 2020): which layers run in this block; the same on every process."""
    if not stack.training or options.decoder_layerdrop == 0:
        return [True] * options.decoder_layers
    return (torch.rand(options.decoder_layers) >= options.decoder_layerdrop).tolist()


class TransformerStack(nn.Module):
    """Layers, positions, final norm, and which layers LayerDrop runs.

    Without options nothing is built yet: a fairseq decoder, which has a constructor of its own, is a stack too
    and calls ``build`` itself. So its parameters carry fairseq's names.
    """

    layer_class = TransformerLayer

    def __init__(self, options: Optional[TransformerOptions] = None):
        super().__init__()
        if options is not None:
            self.build(options)

    def build(self, options: TransformerOptions, own_keys: bool = True) -> None:
        self.options = options
        self.layers = nn.ModuleList(self.layer_class(options, own_keys) for _ in range(options.decoder_layers))
        self.positions = RelativePositions(options)
        final_norm = options.decoder_normalize_before and not options.no_decoder_final_norm
        self.layer_norm = nn.LayerNorm(options.decoder_embed_dim) if final_norm else None

    def reaches(self) -> List[int]:
        """How many steps back each layer attends: S, or its longest head's adaptive span."""
        if not self.options.adaptive_span:
            return [self.options.attention_span] * len(self.layers)
        return reaches([layer.self_attn.adaptive_span for layer in self.layers])

    def kept_steps(self, reaches: List[int]) -> int:
        """How many steps of memory are carried to the next block."""
        return min(self.options.attention_span, max(reaches) + (MARGIN if self.training else 0))

    def new_ring(self, storage: str) -> MemoryRing:
        """An empty memory for decoding step by step."""
        return MemoryRing(max(self.reaches()), storage, captured=self.options.step_loop == "graph")

    def ring_after(self, state: Optional[StreamState], storage: str = "keys-values") -> MemoryRing:
        """A memory for going on step by step where a block ended, with the weights as they are now."""
        ring = self.new_ring(storage)
        if state is not None and state.memory_KCBD.shape[1]:
            memory_KCBD = state.memory_KCBD[:, -ring.span :]
            weights = self.loop_weights(memory_KCBD.device, [ring.span] * len(self.layers))
            ring.load(memory_KCBD, weights, self.loop_options(ring.span))
        return ring

    def span_penalty(self) -> Tensor:
        """``λ S mean(z)`` of each layer, added up: nats for each target, for the training loss."""
        means = torch.stack([layer.self_attn.adaptive_span.z.float().mean() for layer in self.layers])
        return self.options.adaptive_span_loss * self.options.attention_span * means.sum()

    def clamp_spans(self) -> None:
        """Bring z back to [0, 1]; after each optimizer step."""
        if self.options.adaptive_span:
            for layer in self.layers:
                layer.self_attn.adaptive_span.clamp()

    def draw(self, p: float, shape, like: Tensor) -> Optional[Dropout]:
        """A dropout mask in training, else None."""
        return draw_dropout(p if self.training else 0.0, shape, like)

    def finish(self, x: Tensor) -> Tensor:
        """Dropout of the last sublayer's output [..., D], and the final norm."""
        x = dropout(x, self.draw(self.options.output_dropout, x.shape, x))
        return layer_norm(x, self.layer_norm and affine(self.layer_norm))

    def run_block(
        self, x_TBD: Tensor, state: Optional[StreamState] = None, reach_TB: Optional[Tensor] = None
    ) -> Tuple[Tensor, StreamState]:
        """Run the layers over a block of embeddings.

        Args:
            x_TBD: T steps of B streams.
            state: what the streams carry in; None at their start.
            reach_TB: how many steps back each stream reaches at each step, where episodes end (at the start of one 0,
                one step later 1, …); None: as far as its memory goes.

        Returns:
            The top layer's outputs [T, B, D] after the final norm, and the state after the block.
        """
        raise NotImplementedError

    def loop_weights(self, device: torch.device, reaches: List[int]) -> FeedbackWeights:
        """The weights that a step needs, with each layer's spans as far as it reaches."""
        raise NotImplementedError

    def loop_options(self, span: int) -> FeedbackOptions:
        return FeedbackOptions(
            heads=self.options.context_heads,
            span=span,
            activation=self.options.activation_fn,
            normalize_before=self.options.decoder_normalize_before,
            kernel=self.options.step_loop_kernel,
            recompute=self.options.checkpoint_activations or self.options.step_loop_recompute,
        )

    def run_step(self, x_BD: Tensor, ring: MemoryRing) -> Tensor:
        """Run the layers over one step of B streams, and keep what it leaves in the ring.

        Returns:
            The top layer's output [B, D] after the final norm, as ``run_block`` gives it.
        """
        return ring.run(partial(self.step, ring=ring), x_BD)

    def step(self, x_BD: Tensor, ring: MemoryRing) -> Tensor:
        """What ``run_step`` runs, or captures."""
        weights = self.loop_weights(x_BD.device, [ring.span] * len(self.layers))
        options = self.loop_options(ring.span)
        step = feedback_step(
            x_BD,
            project_query(x_BD, weights.layers[0], options.heads, options.normalize_before),
            ring.windows(weights, options, x_BD),
            weights,
            options,
            far_BC=ring.far_BC(x_BD.device),
        )
        ring.push(step.memory_KBD, weights, options)
        return self.finish(step.out_BD)

    def forward(
        self, x_TBD: Tensor, state: Optional[StreamState] = None, reach_TB: Optional[Tensor] = None
    ) -> Tuple[Tensor, StreamState]:
        return self.run_block(x_TBD, state, reach_TB)
