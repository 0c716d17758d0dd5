"""The quickstart's settings: a small Feedback Transformer on the bytes of real text, in a few minutes on a CPU."""

from fb_fairseq.papers.experiments.settings import LanguageModeling, Model, Scale, Training

RUN = "checkpoints"  # the name of its run
PROMPT = "def __init__(self"


def setting(updates: int, layers: int, width: int, span: int, lr: float) -> LanguageModeling:
    """The setting of a model of this size."""
    training = Training(
        # (chosen in examples/results/quickstart.md)
        updates=updates,
        lr=lr,
        streams=48,
        tokens_per_sample=32,
        validate_every=updates // 5,
        valid_streams=32,
        test_streams=32,
        options=dict(clip_norm=1.0),
        warmup=dict(lr_scheduler="cosine", warmup_updates=100),
    )
    sizes = dict(
        decoder_layers=layers,
        decoder_embed_dim=width,
        decoder_ffn_embed_dim=4 * width,
        decoder_attention_heads=4,
        decoder_normalize_before=True,
        attention_span=span,
    )
    named = {RUN: Model("feedback_transformer_lm", sizes)}
    return LanguageModeling("quickstart", "", "", metric="bpb", small=Scale(training, [RUN], named))


# By minutes of training, about, on two idle CPU cores. In so few updates, a longer span is no better.
SETTINGS = {
    2: setting(updates=1000, layers=2, width=128, span=16, lr=0.006),
    10: setting(updates=2300, layers=3, width=192, span=32, lr=0.004),
    60: setting(updates=15000, layers=3, width=160, span=32, lr=0.004),
}
