"""Base class of the stacks of attention layers: their steps, one by one."""

from abc import abstractmethod
from collections.abc import Callable, Sequence

import torch
import torch.nn as nn
from torch import Tensor

from fb_fairseq.modules.attention_stack import AttentionStack
from fb_fairseq.modules.interface import StreamState
from fb_fairseq.modules.layer import transformer_weights
from fb_fairseq.modules.options import TransformerOptions
from fb_fairseq.ops.feedback.reference import feedback_attention, feedback_step
from fb_fairseq.ops.feedback.ring import MemoryRing
from fb_fairseq.ops.feedback.step_inputs import StepInputs
from fb_fairseq.ops.feedback.stepper import Stepper
from fb_fairseq.ops.feedback.types import EncoderContext, FeedbackOptions, FeedbackWeights, StepOutput
from fb_fairseq.ops.layers import has_modules
from fb_fairseq.ops.threads import loop_threads


class TransformerStack(AttentionStack):
    """An ``AttentionStack`` that runs steps. Subclasses say how a block runs, and which weights a step needs; only
    all-attention's steps have other layers than ``feedback_step``.

    Args:
        options, own_keys, layers: see ``AttentionStack``.

    Attributes:
        stepper: runs decoding steps, by the step loop that the options choose.
    """

    layer_weights = staticmethod(transformer_weights)  # a layer's weights, given how many steps back it attends
    uses_feedback_step = True  # whether its steps are ``feedback_step``; loops with their own arithmetic look at it

    def __init__(self, options: TransformerOptions, own_keys: bool = True, layers: Sequence[nn.Module] | None = None):
        super().__init__(options, own_keys, layers)
        self.stepper = Stepper(options.loop_choice())

    @abstractmethod
    def loop_weights(self, device: torch.device, reaches: list[int]) -> FeedbackWeights:
        """The weights that a step needs. ``reaches``: how many steps back each layer reaches."""

    def loop_options(
        self, span: int, alignment_layer: int | None = None, alignment_heads: int | None = None
    ) -> FeedbackOptions:
        """The settings of the step loop; see ``FeedbackOptions``."""
        o = self.options
        return FeedbackOptions(
            heads=o.context_heads,
            span=span,
            activation=o.activation_fn,
            normalize_before=o.decoder_normalize_before,
            recompute=o.checkpoint_activations,
            alignment_layer=alignment_layer,
            alignment_heads=alignment_heads,
        )

    def new_ring(self, storage: str = "keys-values") -> MemoryRing:
        return MemoryRing(max(self.reaches()), storage)

    def ring_after(self, state: StreamState | None, storage: str = "keys-values") -> MemoryRing:
        ring = self.new_ring(storage)
        if state is not None and state.memory_KCBD.shape[1]:
            memory_KCBD = state.memory_KCBD[:, -ring.span :]
            ring.load(memory_KCBD, self.step_weights(ring, memory_KCBD.device), self.loop_options(ring.span))
        return ring

    def run_step(self, x_BD: Tensor, memory: MemoryRing) -> Tensor:
        step = self.decode_step(x_BD, memory, self.loop_options(memory.span))
        return self.finish(step.out_BD, step.representations[:-1])

    def decode_step(
        self, x_BD: Tensor, ring: MemoryRing, options: FeedbackOptions, encoder: Sequence[EncoderContext] = ()
    ) -> StepOutput:
        """Run the layers over one step as ``--step-loop`` says, without the final norm, and add the step to the ring.

        Args:
            x_BD: the step's embeddings.
            ring: of ``new_ring`` or ``ring_after``.
            options: see ``loop_options``.
            encoder: each layer's keys and values of the encoder's output; empty if there is no encoder.
        """
        ring.make_room()
        inputs = StepInputs(x_BD, ring, options, encoder)
        output = self.stepper.run(self, inputs) if self.watched is None else self.reference_step(inputs)
        ring.advance()
        return output

    def reference_step(self, inputs: StepInputs, weights: FeedbackWeights | None = None) -> StepOutput:
        """Run the layers over one step, operation by operation, and store what it leaves in the ring, which counts it
        later.

        Args:
            inputs: the step.
            weights: those of ``step_weights``; None: the model's as they are now.
        """
        x_BD, ring, options, _ = inputs
        weights = weights or self.step_weights(ring, x_BD.device)
        with loop_threads(x_BD.device, self.largest_product(len(x_BD))):
            step = self.layers_step(inputs, ring.attention(weights, options, x_BD), weights)
            ring.store(step.memory_KBD, weights, options)
        return step

    def layers_step(
        self, inputs: StepInputs, attend_memory: Callable[..., Tensor], weights: FeedbackWeights
    ) -> StepOutput:
        """The arithmetic of ``reference_step``.

        Args:
            inputs: the step.
            attend_memory: see ``MemoryRing.attention``.
            weights: those of ``step_weights``.
        """
        return feedback_step(inputs.x_BD, attend_memory, weights, inputs.options, encoder=inputs.encoder)

    def step_weights(self, ring: MemoryRing, device: torch.device) -> FeedbackWeights:
        """The weights that a step on a ring needs."""
        return self.loop_weights(device, [ring.span] * len(self.layers))

    def has_plain_weights(self) -> bool:
        """Whether all layers are plain linear maps and norms, which every loop runs."""
        return not has_modules(self.loop_weights(torch.device("cpu"), self.reaches()))

    def largest_product(self, rows: int) -> int:
        """Multiplications and additions of a step's largest product of a layer, where heads are together as wide as the
        model or narrower.
        """
        o = self.options
        return 2 * rows * o.decoder_embed_dim * max(o.decoder_embed_dim, o.decoder_ffn_embed_dim)

    def step_parameters(self) -> list[nn.Parameter]:
        """The parameters that ``loop_weights`` depends on, and perhaps others."""
        others = [] if isinstance(self.layers, nn.Module) else self.layers
        return [*self.parameters(), *(parameter for layer in others for parameter in layer.parameters())]

    def memory_attention(self, x_TBD: Tensor, state: StreamState | None = None) -> tuple[Tensor, StreamState]:
        """Attention of each head in a block, for inspection: without dropout and without gradient, by the reference
        loop. Not for the layers of translation models, which attend to an encoder too.

        Args:
            x_TBD, state: see ``run_block``.

        Returns:
            The attention weights by distance, [L, B, H, T, S]: column d - 1 is the weight of the step d steps back. A
            head's weights at a step sum to 1, or to 0 where nothing has been seen yet. And the state after the block.
        """
        S = self.options.attention_span
        reaches = self.reaches()
        with torch.no_grad():
            weights = self.loop_weights(x_TBD.device, reaches)
            state = StreamState.entering(state, len(weights.mix_KA), S, x_TBD)
            weights_LBHTS, memory_KTBD = feedback_attention(x_TBD, state.memory_KCBD, weights, self.loop_options(S))
        return weights_LBHTS, state.extended(memory_KTBD, self.carried_steps(reaches))
