"""Base class of the stacks of attention layers."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.nn as nn
from torch import Tensor

from fb_fairseq.modules.affine import norm
from fb_fairseq.modules.interface import Report, Stack, StreamState
from fb_fairseq.modules.layer import TransformerLayer, transformer_weights
from fb_fairseq.modules.options import TransformerOptions
from fb_fairseq.modules.positions import RelativePositions
from fb_fairseq.modules.spans import AdaptiveSpan, longest_spans, span_report
from fb_fairseq.ops.feedback.decoding import StepInputs
from fb_fairseq.ops.feedback.loops import Stepper
from fb_fairseq.ops.feedback.reference import feedback_attention, feedback_step
from fb_fairseq.ops.feedback.ring import MemoryRing
from fb_fairseq.ops.feedback.types import EncoderContext, FeedbackOptions, FeedbackWeights, StepOutput
from fb_fairseq.ops.layers import dropout, has_modules, layer_norm
from fb_fairseq.ops.threads import loop_threads
from fb_fairseq.ops.tracing import is_tracing

# In training, memory is carried this many steps beyond the longest head's span: spans may grow from block to block.
TRAINING_MARGIN = 64


class TransformerStack(Stack):
    """Layers, relative positions and a final norm. Subclasses say how a block runs, and which weights a step needs.

    Args:
        options: of the stack.
        own_keys: whether each layer has key and value projections of its own.
        layers: layers that belong to another module, fairseq's or ours; None: new ones of ``layer_class``.
    """

    layer_class = TransformerLayer
    layer_weights = staticmethod(transformer_weights)  # a layer's weights, given how many steps back it attends
    uses_feedback_step = True  # whether its steps are ``feedback_step``; loops with their own arithmetic look at it

    def __init__(self, options: TransformerOptions, own_keys: bool = True, layers: Sequence[nn.Module] | None = None):
        super().__init__()
        self.stepper: Stepper | None = None  # runs decoding steps
        self._watched: list[list[Tensor]] | None = None
        self.options = options
        if layers is None:
            layers = nn.ModuleList(self.layer_class(options, own_keys) for _ in range(options.decoder_layers))
        self.layers = layers
        self.positions = RelativePositions(options)
        final_norm = options.decoder_normalize_before and not options.no_decoder_final_norm
        self.layer_norm = nn.LayerNorm(options.decoder_embed_dim) if final_norm else None

    @property
    def options(self) -> TransformerOptions:
        """The options; see ``Stack``."""
        return self._options

    @options.setter
    def options(self, options: TransformerOptions) -> None:
        """Take other options; the step loop is chosen now."""
        self._options = options
        name = options.loop_choice()
        if self.stepper is None or name != self.stepper.name:
            self.stepper = Stepper(name)

    def reaches(self) -> list[int]:
        """The steps that each layer attends back to: S, or its longest head's adaptive span. (In a trace: S.)"""
        spans = self.spans()
        if not spans or is_tracing():
            return [self.options.attention_span] * len(self.layers)
        return longest_spans(spans)

    def carried_steps(self, reaches: list[int]) -> int:
        """The number of steps whose memory is carried to the next block."""
        return min(self.options.attention_span, max(reaches) + (TRAINING_MARGIN if self.training else 0))

    def active_layers(self) -> list[bool]:
        """LayerDrop (Fan et al. 2020): which layers run in this block; the same on every process."""
        o = self.options
        if not self.training or o.decoder_layerdrop == 0:
            return [True] * o.decoder_layers
        return (torch.rand(o.decoder_layers) >= o.decoder_layerdrop).tolist()

    def attention_parameters(self) -> list[nn.Parameter]:
        """Parameters without a gradient if T = 1 and nothing is carried in."""
        attention = [part for layer in self.layers for part in (layer.self_attn, layer.self_attn_layer_norm)]
        return [parameter for part in (*attention, self.positions) for parameter in part.parameters()]

    def add_zero_gradient_terms(self, out_TBD: Tensor) -> Tensor:
        """Add zero-valued terms, so that DDP finds a gradient for every parameter.

        A block of a single step does not use the parameters of the memory that it leaves, nor, without a past, those of
        attention.
        """
        if len(out_TBD) > 1 or not torch.is_grad_enabled():
            return out_TBD
        unused = sum(parameter.float().sum() for parameter in self.attention_parameters())
        return out_TBD + 0 * unused.to(out_TBD.dtype)

    def finish(self, x: Tensor, representations: Sequence[Tensor] = ()) -> Tensor:
        """Features [..., D] of the top layer's output: its dropout, and the final norm.

        Args:
            x: the top layer's output.
            representations: the embeddings and the outputs of the layers below it, which ``watching`` shows too.
        """
        x = dropout(x, self.draw(self.options.output_dropout, x.shape, x))
        features = layer_norm(x, self.layer_norm and norm(self.layer_norm))
        if self._watched is not None:
            self._watched.append([y if y.dim() == 3 else y[None] for y in (*representations, features)])
        return features

    # Step by step. The stacks differ in their weights only; all-attention in its layers too.

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

    @contextmanager
    def watching(self) -> Iterator[list[list[Tensor]]]:
        before, self._watched = self._watched, []
        try:
            yield self._watched
        finally:
            self._watched = before

    def decode_step(
        self, x_BD: Tensor, ring: MemoryRing, options: FeedbackOptions, encoder: Sequence[EncoderContext] = ()
    ) -> StepOutput:
        """Run the layers over one step as ``--step-loop`` says, without the final norm, and add the step to the ring.
        ``encoder``: each layer's keys and values of the encoder's output; empty in language models.
        """
        ring.make_room()
        inputs = StepInputs(x_BD, ring, options, encoder)
        output = self.stepper.run(self, inputs) if self._watched is None else self.reference_step(inputs)
        ring.advance()
        return output

    def reference_step(self, inputs: StepInputs, weights: FeedbackWeights | None = None) -> StepOutput:
        """Run the layers over one step, operation by operation, and store what it leaves in the ring, which counts it
        later. ``weights``: None: the model's.
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
        """The arithmetic of ``reference_step``. ``attend_memory``: see ``MemoryRing.attention``."""
        return feedback_step(inputs.x_BD, attend_memory, weights, inputs.options, encoder=inputs.encoder)

    def step_weights(self, ring: MemoryRing, device: torch.device) -> FeedbackWeights:
        """The weights that a step on a ring needs."""
        return self.loop_weights(device, [ring.span] * len(self.layers))

    def has_plain_weights(self) -> bool:
        """Whether all layers are plain linear maps and norms, which every loop runs."""
        return not has_modules(self.loop_weights(torch.device("cpu"), self.reaches()))

    def largest_product(self, rows: int) -> int:
        """Multiplications and additions of a step's largest product."""
        return 2 * rows * self.options.decoder_embed_dim * self.options.decoder_ffn_embed_dim

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
        with torch.no_grad():
            weights = self.loop_weights(x_TBD.device, self.reaches())
            state = StreamState.entering(state, len(weights.mix_KA), S, x_TBD)
            weights_LBHTS, memory_KTBD = feedback_attention(x_TBD, state.memory_KCBD, weights, self.loop_options(S))
        return weights_LBHTS, state.extended(memory_KTBD, self.carried_steps(self.reaches()))

    # Adaptive spans.

    def spans(self) -> list[AdaptiveSpan]:
        """The layers' adaptive spans; none without ``--adaptive-span``."""
        return [layer.self_attn.adaptive_span for layer in self.layers] if self.options.adaptive_span else []

    def report(self) -> Report:
        """The adaptive spans; see ``span_report``."""
        spans = self.spans()
        return span_report(spans, self.options.adaptive_span_loss if self.training else None) if spans else Report({})

    def clamp(self) -> list[nn.Parameter]:
        """Bring the spans z back to [0, 1], and return them."""
        bounded = [span.z for span in self.spans()]
        for z in bounded:
            z.data.clamp_(0, 1)
        return bounded
