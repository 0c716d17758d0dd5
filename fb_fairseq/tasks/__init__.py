"""``--task streaming_lm``: language modeling on streams, with fairseq's trainer, evaluation and generation.

Importing this folder registers the task, and the criterions, which fairseq does not find by itself in a ``--user-dir``.
"""

from fb_fairseq import patches  # noqa: F401  before anything of fairseq is used

# isort: split
from fb_fairseq import criterions  # noqa: F401
from fb_fairseq.tasks import streaming_lm  # noqa: F401
