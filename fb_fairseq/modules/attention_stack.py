"""Base class of the stacks of attention layers: what they have, however their blocks and steps run."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.nn as nn
from torch import Tensor

from fb_fairseq.modules.affine import norm
from fb_fairseq.modules.interface import Report, Stack
from fb_fairseq.modules.layer import TransformerLayer
from fb_fairseq.modules.options import TransformerOptions
from fb_fairseq.modules.positions import RelativePositions
from fb_fairseq.modules.spans import AdaptiveSpan, longest_spans, span_report
from fb_fairseq.ops.dropout import dropout
from fb_fairseq.ops.layers import layer_norm
from fb_fairseq.ops.tracing import is_tracing

# In training, memory is carried this many steps beyond the longest head's span: spans may grow from block to block.
TRAINING_MARGIN = 64


class AttentionStack(Stack):
    """Layers, relative positions and a final norm.

    Args:
        options: of the stack.
        own_keys: whether each layer has key and value projections of its own.
        layers: layers that belong to another module, fairseq's or ours; None: new ones of ``layer_class``.

    Attributes:
        watched: what ``watching`` yields; None outside of it.
    """

    layer_class = TransformerLayer

    def __init__(self, options: TransformerOptions, own_keys: bool = True, layers: Sequence[nn.Module] | None = None):
        super().__init__()
        self.watched: list[list[Tensor]] | None = None
        self.options = options
        if layers is None:
            layers = nn.ModuleList(self.layer_class(options, own_keys) for _ in range(options.decoder_layers))
        self.layers = layers
        self.positions = RelativePositions(options)
        final_norm = options.decoder_normalize_before and not options.no_decoder_final_norm
        self.layer_norm = nn.LayerNorm(options.decoder_embed_dim) if final_norm else None

    def spans(self) -> list[AdaptiveSpan]:
        """The layers' adaptive spans; none without ``--adaptive-span``."""
        return [layer.self_attn.adaptive_span for layer in self.layers] if self.options.adaptive_span else []

    def reaches(self) -> list[int]:
        """The steps that each layer attends back to: S, or its longest head's adaptive span. (In a trace: S.)"""
        spans = self.spans()
        if not spans or is_tracing():
            return [self.options.attention_span] * len(self.layers)
        return longest_spans(spans)

    def carried_steps(self, reaches: list[int]) -> int:
        """The number of steps whose memory is carried to the next block. ``reaches``: see the method."""
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
        if self.watched is not None:
            self.watched.append([y if y.dim() == 3 else y[None] for y in (*representations, features)])
        return features

    @contextmanager
    def watching(self) -> Iterator[list[list[Tensor]]]:
        before, self.watched = self.watched, []
        try:
            yield self.watched
        finally:
            self.watched = before

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
