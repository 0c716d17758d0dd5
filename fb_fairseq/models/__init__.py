"""fairseq's side of the models: configurations, registered architectures, names in checkpoints.

Importing this folder registers them; ``--user-dir fb_fairseq`` does that.

    language_model.py             base classes of the language models
    language_models.py            the language models; architectures.py: their named architectures
    feedback_decoder.py           the translation models; feedback_decoder_config.py: its options
    layers.py                     input and output layers; log_probs.py: what a decoder with an adaptive softmax returns
    option_fields.py              options of configurations
    master_copies.py              parameters that fairseq keeps in fp32
    initialisation.py             --init-from-transformer
    checkpoints.py                reads checkpoints of fairseq; dictionaries.py: their dictionaries
    former_names.py               names of parameters in old ones
    pruning.py                    --encoder-layers-to-keep and the decoder's
"""

from fb_fairseq import patches  # noqa: F401  before anything of fairseq is used

# isort: split
from fb_fairseq import optim  # noqa: F401  registers optimizers, which fairseq-train's options name
from fb_fairseq.models import architectures, feedback_decoder  # noqa: F401
