"""The models that are compared. To add one, write a function that builds its layers, and enter it into the table. All
have the same number of layers and the same width, and as many parameters as the Transformer, as nearly as the ``inner``
size of the entry (of the feed-forward sublayer, or what there is instead) allows.
"""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from fb_fairseq.errors import UserError
from fb_fairseq.modules.feedback_transformer import FeedbackTransformer
from fb_fairseq.modules.options import TransformerOptions
from fb_fairseq.modules.relative_transformer import RelativeTransformer
from fb_fairseq.papers.state_tracking.bodies import Body, LSTMBody, StackBody, TransformersBody
from fb_fairseq.papers.state_tracking.cells import SLSTM, RecurrentBody

CHUNK = 4  # steps that models with a chunked form compute at once; shorter sequences are padded to as many


@dataclass(frozen=True)
class Shape:
    """Sizes of a model.

    Attributes:
        layers, width, heads: as in a Transformer.
        inner: see ``Architecture``.
        span: how many steps back attention reaches; of no effect on recurrent models.
        memory_composition: see ``TransformerOptions``; of the Feedback Transformer.
    """

    layers: int
    width: int
    heads: int
    inner: int
    span: int
    memory_composition: str = "weighted"


def eighths(width: int) -> Sequence[int]:
    """Multiples of 8 up to 8 times the width."""
    return range(8, 8 * width + 1, 8)


def multiples(width: int) -> Sequence[int]:
    """Multiples of the width, for models whose inner size is one of them."""
    return range(width, 8 * width + 1, width)


@dataclass(frozen=True)
class Architecture:
    """An entry of the table.

    Attributes:
        title: its name in figures.
        build: builds the layers.
        inner: possible inner sizes for a width, in rising order; the one is used that comes closest to the parameters
            of the Transformer.
    """

    title: str
    build: Callable[[Shape], Body]
    inner: Callable[[int], Sequence[int]] = eighths


def _options(shape: Shape, **more) -> TransformerOptions:
    return TransformerOptions(
        decoder_layers=shape.layers,
        decoder_embed_dim=shape.width,
        decoder_ffn_embed_dim=shape.inner,
        decoder_attention_heads=shape.heads,
        decoder_normalize_before=True,
        attention_span=shape.span,
        **more,
    )


def feedback(shape: Shape) -> Body:
    """The Feedback Transformer of this project."""
    return StackBody(FeedbackTransformer(_options(shape, memory_composition=shape.memory_composition)))


def transformer(shape: Shape) -> Body:
    """The Transformer of this project, with relative positions."""
    return StackBody(RelativeTransformer(_options(shape)))


def lstm(shape: Shape) -> Body:
    """torch's LSTM, of ``inner`` units."""
    return LSTMBody(shape.width, shape.inner, shape.layers)


def of_transformers(name: str, state: str, options: Callable[[Shape], dict], **more: Any) -> Callable[[Shape], Body]:
    """A function that builds a model of Hugging Face transformers.

    Args:
        name: of its classes, without Config and Model.
        state: ``state_name`` of ``TransformersBody``.
        options: the values of its configuration for a shape.
        more: see ``TransformersBody``.
    """

    def built(shape: Shape) -> Body:
        common = dict(vocab_size=1, hidden_size=shape.width, num_hidden_layers=shape.layers, pad_token_id=None)
        try:
            importlib.import_module("fb_fairseq.transformers.broken_torchaudio")
            library = importlib.import_module("transformers")
            config = getattr(library, f"{name}Config")(**{**common, **options(shape)})
            model = getattr(library, f"{name}Model")(config)
        except (AttributeError, ImportError) as error:  # the former: this version does not have the model
            raise UserError(
                f"{name}: {error}; pip install -U 'fb_fairseq[state-tracking]', or leave the model out"
            ) from None
        if hasattr(model, "layers"):  # (Gated DeltaNet has one more than wanted)
            model.layers = model.layers[: shape.layers]
        return TransformersBody(model, state, **more)

    return built


def check_width(shape: Shape, model: str, factor: int) -> None:
    """Stop unless the width is a multiple of ``factor``, as this model needs it."""
    if shape.width % factor:
        raise UserError(
            f"--width {shape.width}: {model} takes multiples of {factor} only; give one, or leave the model out"
        )


def mamba_options(shape: Shape) -> dict:
    """Mamba (arXiv 2312.00752), of state size 16; ``inner`` channels. Its scan is mambapy's, in parallel in both
    passes.
    """
    return dict(expand=shape.inner // shape.width, use_mambapy=True)


def mamba2_options(shape: Shape) -> dict:
    """Mamba-2 (arXiv 2405.21060), of state size 64; ``inner`` channels in heads of 32, so its width is a multiple."""
    check_width(shape, "Mamba-2", 32)
    heads = dict(num_heads=shape.inner // 32, head_dim=32, n_groups=1)
    return dict(expand=shape.inner // shape.width, state_size=64, chunk_size=CHUNK, **heads)


def rwkv_options(shape: Shape) -> dict:
    """RWKV-4 (arXiv 2305.13048); ``inner`` units in its channel mixing."""
    if shape.layers == 1:  # the library's initial values divide by the number of layers after the first
        raise UserError("--layers 1: RWKV-4 takes 2 or more; give as many, or leave the model out")
    return dict(attention_hidden_size=shape.width, intermediate_size=shape.inner)


def xlstm_options(shape: Shape) -> dict:
    """xLSTM (arXiv 2405.04517) with matrix memories (mLSTM layers, as xLSTM 7B); ``inner`` units in its feed-forward
    sublayers. Its width is a multiple of 64, to which transformers' memory of this model rounds it up.
    """
    check_width(shape, "xLSTM", 64)
    sizes = dict(num_heads=shape.heads, qk_dim_factor=1.0, ffn_proj_factor=shape.inner / shape.width)
    chunks = dict(mode="inference", chunk_size=CHUNK, autocast_kernel_dtype="float32")
    return dict(**sizes, ffn_round_up_to_multiple_of=8, **chunks)


def gated_deltanet_options(shape: Shape, negative: bool) -> dict:
    """The gated DeltaNet layers (arXiv 2412.06464) of OLMo Hybrid, eigenvalues of the state's transition from 0 to 1,
    or, ``negative``, from -1 (Grazzi et al., arXiv 2411.12537).
    """
    head = shape.width // shape.heads
    return dict(
        num_hidden_layers=shape.layers + 1,  # the configuration demands a layer of attention, which is left out
        layer_types=["linear_attention"] * shape.layers + ["full_attention"],
        intermediate_size=shape.inner,
        num_attention_heads=shape.heads,
        linear_allow_neg_eigval=negative,
        linear_num_key_heads=shape.heads,
        linear_num_value_heads=shape.heads,
        linear_key_head_dim=head,
        linear_value_head_dim=head,
    )


def slstm(shape: Shape) -> Body:
    """xLSTM's sLSTM layers."""
    return RecurrentBody(shape.width, shape.inner, [SLSTM(shape.width, shape.heads) for _ in range(shape.layers)])


def deltanet(negative: bool) -> Callable[[Shape], Body]:
    """A function that builds Gated DeltaNet. ``negative``: its eigenvalues are from -1 to 1."""
    options = partial(gated_deltanet_options, negative=negative)
    return of_transformers("OlmoHybrid", "past_key_values", options, chunk_size=CHUNK)


ARCHITECTURES: dict[str, Architecture] = {
    "feedback": Architecture(title="Feedback Transformer", build=feedback),
    "transformer": Architecture(title="Transformer", build=transformer),
    "lstm": Architecture(title="LSTM", build=lstm),
    "mamba": Architecture(
        title="Mamba",
        build=of_transformers("Mamba", "cache_params", mamba_options),
        inner=multiples,
    ),
    "mamba2": Architecture(
        title="Mamba-2",
        build=of_transformers("Mamba2", "cache_params", mamba2_options),
        inner=multiples,
    ),
    "rwkv": Architecture(title="RWKV-4", build=of_transformers("Rwkv", "state", rwkv_options)),
    "xlstm": Architecture(title="xLSTM (mLSTM)", build=of_transformers("xLSTM", "cache_params", xlstm_options)),
    "gated_deltanet": Architecture(title="Gated DeltaNet", build=deltanet(negative=False)),
    "gated_deltanet_negative": Architecture(title="Gated DeltaNet [-1, 1]", build=deltanet(negative=True)),
    "slstm": Architecture(title="sLSTM", build=slstm),
}


def parameters(body: Body) -> int:
    """Number of parameters, without the embedding that models of transformers have and that is not used."""
    return sum(p.numel() for name, p in body.named_parameters() if "embed" not in name)


def fitted_inner(architecture: Architecture, shape: Shape, wanted: int) -> int:
    """The inner size with which the layers have about so many parameters.

    Args:
        architecture: an entry of the table.
        shape: the other sizes.
        wanted: number of parameters.
    """
    sizes = architecture.inner(shape.width)

    def count(place: int) -> int:
        return parameters(architecture.build(replace(shape, inner=sizes[place])))

    low = 0
    high = len(sizes) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if count(middle) <= wanted:
            low = middle
        else:
            high = middle
    return sizes[min((low, high), key=lambda place: abs(count(place) - wanted))]
