"""Feedback Transformer and All-attention networks for fairseq.

Use it as a fairseq plugin: ``fairseq-train --user-dir fb_fairseq --arch feedback_transformer_lm …``.
fairseq itself imports ``fb_fairseq.tasks`` and ``fb_fairseq.models``. This file imports nothing, so that
``fb_fairseq.ops`` and ``fb_fairseq.modules`` run with torch alone.
"""

__version__ = "0.1.0"
