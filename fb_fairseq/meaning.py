"""Options that decide what the numbers of a file mean, where their names and shapes do not; options of a training that
goes on.
"""

from collections.abc import Mapping
from typing import Any

from fb_fairseq.errors import UserError, flag

# Options of models by which parameters of the same names and shapes mean something else.
OF_PARAMETERS = (
    "arch",
    "encoder_attention_heads",
    "decoder_attention_heads",
    "encoder_normalize_before",
    "decoder_normalize_before",
    "activation_fn",
    "memory_composition",
    "persistent_memory_variant",
    "adaptive_span_ramp",
    "share_all_embeddings",
    "share_decoder_input_output_embed",
    "tie_adaptive_weights",
    "tie_adaptive_proj",
    "no_scale_embedding",
    "no_token_positional_embeddings",
)


def check_same_meaning(path: str, saved: Mapping[str, Any], given: Mapping[str, Any], remedy: str) -> None:
    """Check that parameters of a checkpoint mean the same in the model that they are loaded into.

    Args:
        path: the checkpoint, and perhaps its option.
        saved: the options of its model.
        given: those of the model that gets its parameters. Options that either of them does not have are not compared.
        remedy: what to do if they differ.
    """
    names = set(OF_PARAMETERS)
    if given.get("decoder_layers") != saved.get("decoder_layers"):  # its composition may name a layer by its new number
        names.remove("memory_composition")
    if given.get("adaptive_span"):  # spans are learned as fractions of it
        names.add("attention_span")
    for name in sorted(names & saved.keys() & given.keys()):
        if str(saved[name]) != str(given[name]):
            raise UserError(
                f"{path}: was trained with {flag(name)} {saved[name]}, not {given[name]}: its parameters would mean "
                f"something else; {remedy}"
            )


def check_same_options(path: str, saved: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Check that a training may go on from a checkpoint: that none of its options has changed.

    Args:
        path: the checkpoint.
        saved: the options in it.
        given: those of the training.
    """
    for name, value in given.items():
        if value != saved.get(name):
            made = f"{flag(name)} {saved.get(name)}"
            raise UserError(f"{path}: was made with {made}, not {value}; give another --out, or the same options")
