"""The quickstart's settings: a small Feedback Transformer on the bytes of real text, in a few minutes on a CPU."""

from typing import Any

PROMPT = "def __init__(self"
# By minutes of training, about, on two idle CPU cores. How these were found: examples/results/quickstart.md. In so few
# updates, a longer span is no better.
SETTINGS = {
    2: dict(updates=1000, layers=2, width=128, span=16, lr=0.006),
    10: dict(updates=2300, layers=3, width=192, span=32, lr=0.004),
    60: dict(updates=15000, layers=3, width=160, span=32, lr=0.004),
}


def options_of(setting: dict[str, Any]) -> dict[str, Any]:
    """The options of the training."""
    return dict(
        task="streaming_lm",
        arch="feedback_transformer_lm",
        decoder_layers=setting["layers"],
        decoder_embed_dim=setting["width"],
        decoder_ffn_embed_dim=4 * setting["width"],
        decoder_attention_heads=4,
        decoder_normalize_before=True,
        attention_span=setting["span"],
        tokens_per_sample=32,
        batch_size=48,
        valid_streams=32,
        criterion="lm_loss",
        optimizer="adam",
        lr=setting["lr"],
        lr_scheduler="cosine",
        warmup_updates=100,
        clip_norm=1.0,
        keep_interval_updates=1,
    )
