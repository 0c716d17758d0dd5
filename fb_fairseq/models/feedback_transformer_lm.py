"""``--arch feedback_transformer_lm``: Fan et al., arXiv 2002.09402."""

from dataclasses import dataclass

from fairseq.dataclass import ChoiceEnum
from fairseq.models import register_model

from fb_fairseq.models.language_model import (
    LanguageModelDecoder,
    StreamingLanguageModel,
    TransformerLMConfig,
    option,
)
from fb_fairseq.modules import FeedbackTransformer
from fb_fairseq.modules.options import COMPOSITIONS
from fb_fairseq.ops.feedback.select import HELP, KERNELS, STEP_LOOPS


@dataclass
class FeedbackTransformerLMConfig(TransformerLMConfig):
    memory_composition: str = option("weighted", f"what the memory holds of the layers: {COMPOSITIONS}")
    memory_projections: ChoiceEnum(["shared", "per-layer"]) = option(
        "shared", "one key and value projection for all layers (v3 of the paper), or one a layer (v1)"
    )
    step_loop: ChoiceEnum(list(STEP_LOOPS)) = option("auto", HELP["step_loop"])
    step_loop_kernel: ChoiceEnum(list(KERNELS)) = option("torch", HELP["step_loop_kernel"])
    step_loop_recompute: bool = option(False, HELP["step_loop_recompute"])


class FeedbackTransformerDecoder(LanguageModelDecoder, FeedbackTransformer):
    pass


@register_model("feedback_transformer_lm", dataclass=FeedbackTransformerLMConfig)
class FeedbackTransformerLanguageModel(StreamingLanguageModel):
    """Feedback Transformer language model (v3 §3.3)."""

    decoder_class = FeedbackTransformerDecoder
