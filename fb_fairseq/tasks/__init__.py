"""Language modeling on streams, for fairseq's trainer and evaluation.

Importing this folder registers the task, and what fairseq does not import by itself of a ``--user-dir``.
"""

from fb_fairseq import patches  # noqa: F401  before anything of fairseq is used

# isort: split
from fb_fairseq import criterions  # noqa: F401
from fb_fairseq.tasks import streaming_lm  # noqa: F401
