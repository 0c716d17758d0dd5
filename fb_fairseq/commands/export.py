"""Write a trained language model for Hugging Face transformers.

    python -m fb_fairseq export checkpoints/checkpoint_best.pt --to model
    python -m fb_fairseq export checkpoints/checkpoint_best.pt --to model --dict data-bin/dict.txt --license cc-by-4.0

DIR gets config.json, model.safetensors, the files of a tokenizer, and README.md, a model card. fairseq is not needed to
load it: import fb_fairseq.transformers, then use AutoModelForCausalLM and AutoTokenizer.
"""

import os
from typing import Any, Dict, List, Optional

from fb_fairseq.command_line import CommandParser
from fb_fairseq.errors import UserError
from fb_fairseq.files import atomic_folder, check_output_folder

# Buffers of fairseq's modules that hold no parameters.
NO_PARAMETERS = ("_float_tensor", "version")


def model_name(options: Dict[str, Any]) -> str:
    """The name of a checkpoint's model, without that of its sizes: ``feedback_transformer_lm``."""
    from fairseq.models import ARCH_MODEL_NAME_REGISTRY

    import fb_fairseq.models  # noqa: F401  registers the architectures

    name = str(options.get("_name") or options.get("arch"))
    return ARCH_MODEL_NAME_REGISTRY.get(name, name)


def configuration(path: str, options: Dict[str, Any], symbols: int):
    """The configuration of a checkpoint's model.

    Args:
        options: those of the model.
        symbols: size of its dictionary.

    Raises:
        UserError: the model has no counterpart in transformers.
    """
    from fb_fairseq.transformers import CONFIGS

    name = model_name(options)
    if name not in CONFIGS:
        raise UserError(f"{path}: {name} cannot be exported; give a checkpoint of {', '.join(CONFIGS)}")
    if options.get("relative_positions") == "none" and options.get("decoder_learned_pos"):
        raise UserError(f"{path}: its learned positions end; only models for texts of any length can be exported")
    config = CONFIGS[name]
    values = {option: options[option] for option in config.option_defaults() if options.get(option) is not None}
    values = {
        option: value if isinstance(value, (bool, int, float)) else str(value) for option, value in values.items()
    }
    return config(vocab_size=symbols, memory_storage=str(options.get("memory_storage", "keys-values")), **values)


def build_model(path: str, config, parameters: Dict[str, Any]):
    """The model of a configuration, with the parameters of a checkpoint.

    Raises:
        UserError: names or shapes are not those of the configuration.
    """
    from fb_fairseq.transformers.configuration import BOS, PAD, UNK
    from fb_fairseq.transformers.modeling import MODELS

    model = MODELS[config.model_type](config)
    expected = model.state_dict()
    found = {name: x for name, x in parameters.items() if name.rpartition(".")[2] not in NO_PARAMETERS}
    expected = {name: x for name, x in expected.items() if name.rpartition(".")[2] not in NO_PARAMETERS}
    misfits = [name for name in expected if name not in found or found[name].shape != expected[name].shape]
    misfits += [name for name in found if name not in expected]
    if misfits:
        raise UserError(
            f"{path}: {', '.join(misfits[:3])}: not as its own options say; give a complete checkpoint of a model that "
            "was trained with this package"
        )
    model.load_state_dict(found, strict=False)
    model.generation_config.suppress_tokens = [BOS, PAD, UNK]  # as python -m fb_fairseq generate does
    return model.eval()


def read_dictionary(path: str, given: Optional[str], saved: Dict[str, Any]):
    """The dictionary of a checkpoint's training data.

    Args:
        path: the checkpoint.
        given: ``--dict``; None: the data folder's ``dict.txt``, or the one beside the checkpoint.

    Raises:
        UserError: there is none.
    """
    from fairseq.data import Dictionary

    folders = [str(saved["cfg"]["task"].get("data") or "").split(":")[0], os.path.dirname(os.path.abspath(path))]
    candidates = [given] if given else [os.path.join(folder, "dict.txt") for folder in folders if folder]
    for candidate in candidates:
        if os.path.isfile(candidate):
            return Dictionary.load(candidate)
    raise UserError(
        f"--dict {candidates[0]}: no such file; give the dict.txt of the data that the model was trained on"
    )


def facts(model, tokenizer_kind: str, saved: Dict[str, Any], name: str, license_name: str):
    """What the model card says.

    Args:
        tokenizer_kind: ``bytes``, ``words`` or ``subwords``.
    """
    from fb_fairseq.transformers.card import CardFacts, figures_of_checkpoint

    config = model.config
    return CardFacts(
        name=name,
        architecture=config.model_type,
        layers=config.decoder_layers,
        width=config.decoder_embed_dim,
        feed_forward=None
        if config.model_type.startswith("all_att")
        else getattr(config, "decoder_ffn_embed_dim", None),
        persistent_vectors=getattr(config, "persistent_memory_size", 0) or None,
        heads=getattr(config, "decoder_attention_heads", None),
        span=getattr(config, "attention_span", None),
        adaptive_span=getattr(config, "adaptive_span", False),
        parameters=sum(p.numel() for p in model.parameters()),
        reads=tokenizer_kind,
        vocabulary=config.vocab_size,
        license=license_name or None,
        **figures_of_checkpoint(saved),
    )


def export(
    path: str, folder: str, dictionary_path: Optional[str], codes: Optional[str], license_name: str
) -> List[str]:
    """Write the model to a folder.

    Returns:
        The names of its files.

    Raises:
        UserError: the checkpoint cannot be exported; nothing is written then.
    """
    from fb_fairseq import patches, tensor_files  # noqa: F401  patches: the safe globals, before fairseq is used
    from fb_fairseq.byte_codec import is_byte_dictionary
    from fb_fairseq.commands.plot.checkpoints import model_options
    from fb_fairseq.transformers.card import model_card
    from fb_fairseq.transformers.tokenizers import build_tokenizer, save_tokenizer

    check_output_folder("--to", folder)
    saved = tensor_files.load_checkpoint(path)
    if saved.get("cfg") is None:
        raise UserError(f"{path}: has no options (cfg); give a checkpoint of fairseq-train")
    if saved["cfg"]["task"].get("labels"):
        raise UserError(
            f"{path}: predicts labels, not the next symbol; give a checkpoint that was trained without --labels"
        )
    options = model_options(saved)
    if not model_name(options).endswith("_lm"):
        raise UserError(f"{path}: {model_name(options)} cannot be exported; give a checkpoint of a language model")
    dictionary = read_dictionary(path, dictionary_path, saved)
    config = configuration(path, options, len(dictionary))
    model = build_model(path, config, saved["model"])
    tokenizer = build_tokenizer(dictionary.symbols, codes)
    kind = "bytes" if is_byte_dictionary(dictionary) else "subwords" if codes else "words"
    name = os.path.basename(os.path.abspath(folder))
    card = model_card(facts(model, kind, saved, name, license_name))
    with atomic_folder(folder) as temporary:
        model.save_pretrained(temporary)
        save_tokenizer(tokenizer, temporary)
        with open(os.path.join(temporary, "README.md"), "w", encoding="utf-8") as file:
            file.write(card)
        return sorted(os.listdir(temporary))


def build_parser() -> CommandParser:
    """The command's options."""
    parser = CommandParser("export", description=__doc__)
    parser.add_argument("checkpoint", help="checkpoint of a language model")
    parser.add_argument("--to", required=True, metavar="DIR", help="folder to write")
    parser.add_argument("--dict", metavar="FILE", help="dict.txt of the data (default: that of the training data)")
    parser.add_argument(
        "--bpe-codes", metavar="FILE", help="subword-nmt's codes, if the words of the data are subwords"
    )
    parser.add_argument("--license", default="", help="licence of the model, for the card")
    return parser


def main(argv=None) -> None:
    """Run the command; see ``--help``."""
    parser = build_parser()
    args = parser.parse_args(argv)
    with parser.one_line_errors():
        names = export(args.checkpoint, args.to, args.dict, args.bpe_codes, args.license)
    print(f"{args.to}: {', '.join(names)}")
