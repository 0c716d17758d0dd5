"""fairseq's side of the models: configurations, registered architectures, names in checkpoints.

Importing this folder registers them; ``--user-dir fb_fairseq`` does that.
"""

from fb_fairseq import patches  # noqa: F401  before anything of fairseq is used

# isort: split
from fb_fairseq import optim  # noqa: F401  registers optimizers, which fairseq-train's options name
from fb_fairseq.models import (  # noqa: F401
    all_attention_lm,
    feedback_decoder,
    feedback_transformer_lm,
    multilingual_feedback,
    presets,
    relative_transformer_lm,
    streaming_lstm_lm,
)
