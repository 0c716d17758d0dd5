"""``--arch feedback_transformer_lm``: Fan et al., arXiv 2002.09402."""

from fairseq.models import register_model

from fb_fairseq.models.language_model import TransformerLanguageModel, TransformerLMConfig
from fb_fairseq.models.layers import described, with_options
from fb_fairseq.modules import FeedbackTransformer
from fb_fairseq.modules.options import TransformerOptions

FEEDBACK_OPTIONS = (
    "memory_composition",
    "memory_projections",
    "step_loop",
    "step_loop_recompute",
    "parallel_passes",
    "parallel_tolerance",
)


@with_options(described(TransformerOptions, *FEEDBACK_OPTIONS))
class FeedbackTransformerLMConfig(TransformerLMConfig):
    """Options of ``feedback_transformer_lm``."""


@register_model("feedback_transformer_lm", dataclass=FeedbackTransformerLMConfig)
class FeedbackTransformerLanguageModel(TransformerLanguageModel):
    """Feedback Transformer language model (v3 §3.3).

    ``torch.compile`` compiles what is before and after the step loop; ``torch.jit.script`` cannot compile the model,
    because it does not support ``autograd.Function``, which the loop uses."""

    config_class = FeedbackTransformerLMConfig
    stack_class = FeedbackTransformer
