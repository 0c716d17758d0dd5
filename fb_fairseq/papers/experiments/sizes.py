"""Sizes of small models that have as many parameters as each other."""

from fb_fairseq.papers.experiments.settings import Options


def equal_parameters(arch: str, ffn: int, vectors: int | None = None, activation_dropout: float = 0) -> Options:
    """Options of the feed-forward sublayers, with which the small models have the same number of parameters: the width
    ``ffn``, or a number of persistent vectors.

    The 1 + layers memory weights of the Feedback Transformer do not count, nor biases and norms, of which all-attention
    networks have fewer.

    Args:
        arch: one of this package's language models.
        ffn: width of the feed-forward sublayers.
        vectors: persistent vectors per head; None: ``ffn``.
        activation_dropout: of the feed-forward sublayers.
    """
    if arch == "all_attention_lm":
        return dict(persistent_memory_size=vectors or ffn)
    options = dict(decoder_ffn_embed_dim=ffn, activation_dropout=activation_dropout or None)
    if arch == "feedback_transformer_lm":
        options.update(memory_projections="per-layer")
    return options


def small_sizes(arch: str, layers: int, width: int) -> Options:
    """The sizes that the small models on text have in common. All are pre-norm but all-attention networks, as their
    paper's normalise after each sublayer (Eq. 6 and 14).
    """
    return dict(
        decoder_normalize_before=arch != "all_attention_lm",
        decoder_layers=layers,
        decoder_embed_dim=width,
        decoder_attention_heads=4,
        attention_span=64,
    )


def equal_lstm(layers: int, parameters: int, width: int, words: int = 0) -> Options:
    """The sizes of an LSTM with as many parameters as a Transformer of this width: ``parameters`` in its layers, and
    ``words`` for each unit of the width in its embeddings and its output layer.
    """
    total = parameters + words * width
    each = 8 * layers
    equal = ((words**2 + 4 * each * total) ** 0.5 - words) / (2 * each)  # solves each * equal² + words * equal = total
    return dict(decoder_layers=layers, decoder_embed_dim=8 * round(equal / 8))
