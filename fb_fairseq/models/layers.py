"""Input and output layers of the models in fairseq, and dictionaries that fit them."""

from fairseq.data import Dictionary
from torch import Tensor

from fb_fairseq.errors import UserError, flag
from fb_fairseq.models.option_fields import make_options
from fb_fairseq.modules.words import WordLayers, WordOptions, build_word_layers


def word_layers(cfg, dictionary: Dictionary, output_dictionary: Dictionary) -> WordLayers:
    """Build the embeddings and the output layer of a decoder.

    Args:
        cfg: a ``LanguageModelConfig``.
        dictionary: that of the inputs.
        output_dictionary: that of the targets; may be ``dictionary`` itself.
    """
    if output_dictionary is not dictionary:
        for name in ("share_decoder_input_output_embed", "tie_adaptive_weights"):
            if getattr(cfg, name):
                raise UserError(f"{flag(name)}: inputs and labels (--labels) have different dictionaries; leave it out")
    options = make_options(WordOptions, cfg)
    return build_word_layers(options, cfg.decoder_embed_dim, len(dictionary), dictionary.pad(), len(output_dictionary))


def vocabulary_size(state_dict: dict[str, Tensor], prefix: str) -> int:
    """Number of symbols of a checkpoint's embeddings, plain or adaptive; 0 if there are none of this prefix."""
    plain = state_dict.get(f"{prefix}weight")
    if plain is not None:
        return len(plain)
    return sum(
        len(value)
        for name, value in state_dict.items()
        if name.startswith(f"{prefix}embeddings.") and name.endswith(".0.weight")
    )


def check_dictionary(state_dict: dict[str, Tensor], side: str, dictionary: Dictionary, file: str = "dict.txt") -> None:
    """Check a checkpoint's embeddings against the dictionary of the data.

    Args:
        state_dict: the checkpoint's parameters.
        side: ``encoder`` or ``decoder``.
        dictionary: that of the data.
        file: the dictionary's name, for the error.
    """
    saved = vocabulary_size(state_dict, f"{side}.embed_tokens.")
    own = len(dictionary)
    if saved and saved != own:
        raise UserError(
            f"{file}: the checkpoint's model was trained with a dictionary of {saved} symbols, the data's has {own}; "
            "give data prepared with the same dictionary (fairseq-preprocess --srcdict, --tgtdict), or another "
            "--save-dir for a new model"
        )
