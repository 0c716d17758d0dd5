"""Checkpoints of the papers' own programs, in FB_FAIRSEQ_DATA."""

FILES = [
    "adaptive-span.plain",
    "adaptive-span.adaptive_span",
    "adaptive-span.all_attention",
    "transformer-sequential.transformer_pre",
    "transformer-sequential.per_layer_pre",
    "transformer-sequential.per_layer_pre_span",
    "transformer-sequential.shared_pre",
    "transformer-sequential.shared_pre_span",
    "transformer-sequential.shared_post",
]
