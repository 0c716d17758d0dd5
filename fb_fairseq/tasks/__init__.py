"""Streams of text with carried memory, for fairseq's trainer and evaluation.

Importing this folder registers the tasks, and what fairseq does not import by itself of a ``--user-dir``.
"""

from fb_fairseq import compat  # noqa: F401  mends fairseq before anything else of it is used
from fb_fairseq import criterions  # noqa: F401
from fb_fairseq.tasks import streaming_lm  # noqa: F401
