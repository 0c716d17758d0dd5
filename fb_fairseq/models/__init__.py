"""fairseq's side of the models: configurations, registered architectures, names in checkpoints.

Importing this folder registers them; ``--user-dir fb_fairseq`` does that.

    language_model.py             base classes of the language models
    feedback_transformer_lm.py, relative_transformer_lm.py, all_attention_lm.py, streaming_lstm_lm.py   the models
    feedback_decoder.py           the translation model; feedback_decoder_config.py: its options
    multilingual_feedback.py      several languages
    layers.py                     input and output layers, fairseq's layers in a stack, options of configurations
    presets.py                    named architectures
    initialisation.py             --init-from-transformer
    checkpoints.py                the file that it names; --encoder-layers-to-keep, --decoder-layers-to-keep
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
