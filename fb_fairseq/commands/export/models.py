"""Models for transformers, made of a checkpoint of fairseq, its options and its dictionaries."""

import os
from typing import Any, NamedTuple

from fb_fairseq.checksums import check_dictionaries, dictionary_checksums, trained_dictionaries
from fb_fairseq.errors import UserError
from fb_fairseq.meaning import PAD, never_drawn, padding_words
from fb_fairseq.tensor_files import load_checkpoint, model_options

Languages = tuple[str | None, str | None]  # source and target
BEAMS, LONGEST = 5, 200  # fairseq-generate's --beam and --max-len-b
LONGEST_TARGET = 1024  # fairseq's --max-target-positions


class Checkpoint(NamedTuple):
    """A checkpoint, and what the command's options say of it."""

    path: str  # the file
    saved: dict[str, Any]  # its content
    options: dict[str, Any]  # those of its model, flat
    task: dict[str, Any]  # those of its task
    architecture: str  # the model's name, without that of its sizes: ``feedback_transformer_lm``
    dictionaries: str | None  # value of ``--dict``
    codes: str | None  # value of ``--bpe-codes``
    languages: Languages  # values of ``--source-lang`` and ``--target-lang``

    @property
    def data(self) -> str:
        """The first folder of the training data; empty if the checkpoint does not say."""
        return str(self.task.get("data") or "").split(":")[0]

    def values(self, defaults: dict[str, Any]) -> dict[str, Any]:
        """The checkpoint's options among those that a configuration has, as plain values. ``defaults``: the
        configuration's."""
        found = {name: self.options[name] for name in defaults if self.options.get(name) is not None}
        return {name: as_json(value) for name, value in found.items()}

    def dictionary(self, name: str, side: str):
        """A dictionary of the training data: that of ``--dict`` (the file itself, or its folder), of the data folder,
        or the one beside the checkpoint. ``name``: of the file, ``dict.txt``. ``side``: ``encoder`` or ``decoder``."""
        from fairseq.data import Dictionary

        from fb_fairseq.models.layers import vocabulary_size

        folders = [folder for folder in (self.data, os.path.dirname(os.path.abspath(self.path))) if folder]
        if self.dictionaries:
            folders = [self.dictionaries]
        candidates = [os.path.join(folder, name) for folder in folders]
        if self.dictionaries and (name == "dict.txt" and not os.path.isdir(self.dictionaries)):
            candidates = [self.dictionaries]
        for candidate in candidates:
            if os.path.isfile(candidate):
                found, symbols = (
                    Dictionary.load(candidate),
                    vocabulary_size(self.saved["model"], f"{side}.embed_tokens."),
                )
                if symbols and len(found) != symbols:
                    raise UserError(f"{candidate}: has {len(found)} symbols, the model {symbols}; give its own --dict")
                own = dictionary_checksums({"source" if side == "encoder" else "target": found})
                check_dictionaries(f"--dict {candidate}: {self.path}", trained_dictionaries(self.saved), own)
                return found
        what = f"the {name}" if name == "dict.txt" else f"the folder with {name}"
        raise UserError(f"--dict {candidates[0]}: no such file; give {what} of the data that the model was trained on")


def as_json(value: Any) -> Any:
    """An option's value as JSON has it; lists as on the command line."""
    if isinstance(value, (bool, int, float)):
        return value
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def read(path: str, dictionaries: str | None, codes: str | None, languages: Languages) -> Checkpoint:
    """Read a checkpoint."""
    from fairseq.models import ARCH_MODEL_NAME_REGISTRY

    import fb_fairseq.models  # noqa: F401  registers the architectures

    saved = load_checkpoint(path)
    if saved.get("cfg") is None:
        raise UserError(f"{path}: has no options (cfg); give a checkpoint of fairseq-train")
    task = model_options(saved, "task")
    if task.get("labels"):
        raise UserError(f"{path}: predicts labels, not the next symbol; give a checkpoint trained without --labels")
    options = model_options(saved)
    name = str(options.get("_name") or options.get("arch"))
    architecture = ARCH_MODEL_NAME_REGISTRY.get(name, name)
    return Checkpoint(path, saved, options, task, architecture, dictionaries, codes, languages)


def load_parameters(checkpoint: Checkpoint, model) -> None:
    """Give a model the checkpoint's parameters."""
    from fb_fairseq.models.checkpoints import NO_PARAMETERS

    expected, found = (
        {name: x for name, x in state.items() if not NO_PARAMETERS.match(name)}
        for state in (model.state_dict(), checkpoint.saved["model"])
    )
    misfits = [name for name in expected if name not in found or found[name].shape != expected[name].shape]
    misfits += [name for name in found if name not in expected]
    if misfits:
        raise UserError(
            f"{checkpoint.path}: {', '.join(misfits[:3])}: not as its own options say; give a complete checkpoint of a "
            "model that was trained with this package"
        )
    model.load_state_dict(found, strict=False)
    model.eval()


def build_language_model(checkpoint: Checkpoint, card: dict[str, Any]):
    """A language model, its tokenizer, and what its card says. ``card``: what is known of the model already, as
    arguments of ``CardFacts``."""
    from fb_fairseq.byte_codec import is_byte_dictionary
    from fb_fairseq.transformers import CONFIGS
    from fb_fairseq.transformers.modeling import MODELS
    from fb_fairseq.transformers.tokenizers import build_tokenizer

    options, dictionary = checkpoint.options, checkpoint.dictionary("dict.txt", "decoder")
    if options.get("relative_positions") == "none" and options.get("decoder_learned_pos"):
        raise UserError(f"{checkpoint.path}: its learned positions end; give a model for texts of any length")
    kind, line_ends = CONFIGS[checkpoint.architecture], not checkpoint.task.get("omit_eos")
    config = kind(
        vocab_size=len(dictionary),
        omit_eos=not line_ends,
        memory_storage=str(options.get("memory_storage", "keys-values")),
        **checkpoint.values(kind.option_defaults()),
    )
    model = MODELS[config.model_type](config)
    load_parameters(checkpoint, model)
    model.generation_config.suppress_tokens = never_drawn(dictionary.symbols)
    reads = "bytes" if is_byte_dictionary(dictionary) else "subwords" if checkpoint.codes else "words"
    tokenizer = build_tokenizer(dictionary.symbols, checkpoint.codes, line_ends=line_ends)
    return model, {"": tokenizer}, card_facts(model, reads=reads, **card)


def check(checkpoint: Checkpoint) -> None:
    """Check that the model has a counterpart in transformers."""
    options = checkpoint.options
    width = options.get("decoder_output_dim")
    if options.get("no_cross_attention"):
        raise UserError(f"{checkpoint.path}: trained with --no-cross-attention, which cannot be exported")
    if width not in (None, options.get("decoder_embed_dim")):
        raise UserError(f"{checkpoint.path}: trained with --decoder-output-dim {width}, which cannot be exported")


def read_languages(checkpoint: Checkpoint) -> tuple[str, str]:
    """Checkpoint and target language: as given, as fairseq-train was told, or as it found them in the data folder."""
    from fairseq.data.data_utils import infer_language_pair

    saved = checkpoint.task.get("source_lang"), checkpoint.task.get("target_lang")
    languages = [given or trained for given, trained in zip(checkpoint.languages, saved)]
    if None in languages and os.path.isdir(checkpoint.data):
        languages = [known or found for known, found in zip(languages, infer_language_pair(checkpoint.data))]
    if None in languages:
        raise UserError(
            f"{checkpoint.path}: does not say its languages, nor does its data folder {checkpoint.data}; give "
            "--source-lang and --target-lang"
        )
    return languages[0], languages[1]


def build_translation(checkpoint: Checkpoint, card: dict[str, Any]):
    """A translation model, its tokenizers, and what its card says. ``card``: what is known of the model already, as
    arguments of ``CardFacts``."""
    from fb_fairseq.transformers.card import TARGET_FOLDER
    from fb_fairseq.transformers.configuration import FeedbackDecoderConfig
    from fb_fairseq.transformers.seq2seq import FeedbackDecoderForConditionalGeneration
    from fb_fairseq.transformers.tokenizers import build_tokenizer

    check(checkpoint)
    options = checkpoint.options
    languages = read_languages(checkpoint)
    sides = zip(languages, ("encoder", "decoder"))
    dictionaries = [checkpoint.dictionary(f"dict.{language}.txt", side) for language, side in sides]
    values = checkpoint.values(FeedbackDecoderConfig.option_defaults())
    if values.get("adaptive_softmax_cutoff"):
        values["share_decoder_input_output_embed"] = False  # fairseq ignores it then
    values["activation_dropout"] = options.get("activation_dropout") or options.get("relu_dropout") or 0.0
    config = FeedbackDecoderConfig(
        source_vocab_size=len(dictionaries[0]),
        vocab_size=len(dictionaries[1]),
        share_all_embeddings=bool(options.get("share_all_embeddings")),
        decoder_learned_pos=bool(options.get("decoder_learned_pos")),
        max_target_positions=int(options.get("max_target_positions") or LONGEST_TARGET),
        source_lang=languages[0],
        target_lang=languages[1],
        memory_storage=str(options.get("memory_storage", "keys-values")),
        **values,
    )
    model = FeedbackDecoderForConditionalGeneration(config)
    load_parameters(checkpoint, model)
    longest = min(LONGEST + 1, config.max_target_positions)  # with the </s> at the beginning
    never = [PAD, *padding_words(dictionaries[1].symbols)]
    model.generation_config.update(num_beams=BEAMS, early_stopping=True, min_new_tokens=1, max_length=longest)
    model.generation_config.update(suppress_tokens=never)
    tokenizers = {"": build_tokenizer(dictionaries[0].symbols, checkpoint.codes, after_text=True)}
    if dictionaries[0] != dictionaries[1]:
        tokenizers[TARGET_FOLDER] = build_tokenizer(dictionaries[1].symbols, checkpoint.codes, after_text=True)
    reads = "subwords" if checkpoint.codes else "words"
    more = dict(languages=" → ".join(languages), separate_tokenizers=len(tokenizers) > 1, **card)
    return model, tokenizers, card_facts(model, reads=reads, **more)


def card_facts(model, **card):
    """The facts of a model's card: those that its configuration says, and others."""
    from fb_fairseq.transformers.card import CardFacts

    config = model.config
    names = dict(layers="decoder_layers", width="decoder_embed_dim", heads="decoder_attention_heads")
    if config.is_encoder_decoder:
        names.update(encoder_layers="encoder_layers")
    else:
        names.update(span="attention_span", persistent_vectors="persistent_memory_size")
    if not config.model_type.startswith("all_att"):
        names.update(feed_forward="decoder_ffn_embed_dim")
    known = {fact: getattr(config, name, None) or None for fact, name in names.items()}
    parameters = sum(p.numel() for p in model.parameters())
    known.update(architecture=config.model_type, parameters=parameters, vocabulary=config.vocab_size)
    return CardFacts(**known, adaptive_span=getattr(config, "adaptive_span", False), **card)
