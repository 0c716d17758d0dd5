"""Parameters and modules built on ``fb_fairseq.ops``. Imports torch and ops only, and runs without fairseq.

Parameters carry fairseq's names wherever a vanilla Transformer has the same parameter. Shape suffixes: see
``fb_fairseq/ops/__init__.py``.
"""

from fb_fairseq.modules.all_attention import AllAttention
from fb_fairseq.modules.feedback_transformer import FeedbackTransformer
from fb_fairseq.modules.options import TransformerOptions
from fb_fairseq.modules.relative_transformer import RelativeTransformer
from fb_fairseq.modules.ring import MemoryRing
from fb_fairseq.modules.state import StreamState

__all__ = [
    "AllAttention",
    "FeedbackTransformer",
    "MemoryRing",
    "RelativeTransformer",
    "StreamState",
    "TransformerOptions",
]
