"""Parameters and modules on top of ``fb_fairseq.ops``. Imports torch, ops and the helpers for options only.

    interface.py    the interface of stacks of layers: run a block of steps at once, or one step after the other
    feedback_transformer.py, relative_transformer.py, all_attention.py, lstm.py   the stacks
    all_attention_inspection.py   the attention weights of all_attention.py's layers
    attention_stack.py   base class of the attention stacks; stack.py: their steps; layer.py: their layers
    spans.py        adaptive spans
    holder.py       base class of decoders that own a stack
    affine.py       their linear maps and norms, also where users have put something in their place
    memory.py       the feedback memory's parameters; positions.py: positions
    words.py        embeddings and output layers
    adaptive_input.py, adaptive_softmax.py   adaptive ones; adaptive_bands.py: their bands; adaptive_losses.py: losses
    language_model.py   the parts of all language models: embeddings, a stack, an output layer
    encoder.py      a Transformer encoder, for translation without fairseq; embedder.py: what is before its layers
    options.py      all options, each described once

Parameters carry fairseq's names wherever a vanilla Transformer has the same parameter.
"""

from fb_fairseq.modules.all_attention import AllAttention
from fb_fairseq.modules.feedback_transformer import FeedbackTransformer
from fb_fairseq.modules.interface import StreamState
from fb_fairseq.modules.options import TransformerOptions
from fb_fairseq.modules.relative_transformer import RelativeTransformer
from fb_fairseq.ops.feedback.ring import MemoryRing

__all__ = [
    "AllAttention",
    "FeedbackTransformer",
    "MemoryRing",
    "RelativeTransformer",
    "StreamState",
    "TransformerOptions",
]
