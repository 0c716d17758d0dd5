"""Language models for inspection, and the texts that they are run on.

fairseq is imported only inside functions, so that learning curves can be drawn without it.
"""

import os
from collections.abc import Iterable
from typing import Any, NamedTuple

from fb_fairseq import byte_codec
from fb_fairseq.commands import checkpoint_of
from fb_fairseq.drawing import without_math
from fb_fairseq.errors import UserError
from fb_fairseq.files import check_regular, open_text

CHOICE = "feedback_transformer_lm, relative_transformer_lm or all_attention_lm"


class LoadedModel(NamedTuple):
    """A language model in evaluation mode."""

    source: str  # the option and the path that name it, for messages
    # fairseq's
    model: Any
    task: Any
    device: Any  # where it runs

    @property
    def stack(self):
        """The model's layers."""
        return self.model.decoder.stack

    @property
    def dictionary(self):
        """The dictionary of its inputs."""
        return self.task.source_dictionary

    @property
    def has_labels(self) -> bool:
        """Whether it was trained with ``--labels``."""
        return bool(getattr(self.task.args, "labels", False))  # other tasks do not have the option


def load_model(option: str, path: str, data: str | None, cpu: bool = False, **overrides: Any) -> LoadedModel:
    """Load a language model of this package.

    Args:
        option: the option that names the checkpoint; empty if none does.
        path: the checkpoint, or the name of a model that comes with the package.
        data: folder with its dictionary; None: that of its training data.
        cpu: use the CPU even if there is a GPU.
        overrides: other values of options of its training."""
    import torch

    from fb_fairseq import patches  # noqa: F401  before fairseq is imported: the warning filters

    # isort: split
    from fairseq import checkpoint_utils

    import fb_fairseq.tasks  # noqa: F401  --user-dir does this in fairseq's commands
    from fb_fairseq.models.language_model import StreamingLanguageModel

    overrides.update({} if data is None else {"data": data})
    file = checkpoint_of(path)
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([file], arg_overrides=overrides)
    source = f"{option} {path}".strip()
    if not isinstance(model, StreamingLanguageModel):
        raise UserError(f"{source}: is not a language model of this package; give a checkpoint of {CHOICE}")
    if model.decoder.embed_positions is not None:
        raise UserError(f"{source}: its learned positions end; give a checkpoint without --decoder-learned-pos")
    device = torch.device("cuda" if torch.cuda.is_available() and not cpu else "cpu")
    return LoadedModel(source, model.eval().to(device), task, device)


def check_split(data: str, split: str) -> None:
    """Check that a folder has a split, of text or of labelled sequences."""
    from fb_fairseq.streams.fairseq.labels import INPUT, file_prefix

    if not any(os.path.exists(os.path.join(data, f"{name}.idx")) for name in (split, file_prefix(split, INPUT))):
        raise UserError(f"--data {data}: has no binarised {split} split; give another folder, or another --split")


def load_corpus(loaded: LoadedModel, data: str, split: str):
    """The ``Corpus`` of a split; of labelled sequences, that of their inputs."""
    from fb_fairseq.streams.fairseq.corpus import Corpus, check_ends, load_indexed_dataset
    from fb_fairseq.streams.fairseq.labels import INPUT, file_prefix

    if getattr(loaded.task.args, "separate_sequences", False):
        raise UserError(f"{loaded.source}: reads each sequence with an empty memory; give one with --prompt or --text")
    path = os.path.join(data, file_prefix(split, INPUT) if loaded.has_labels else split)
    dataset, eos = load_indexed_dataset(path, loaded.dictionary), loaded.dictionary.eos()
    omit_eos = bool(getattr(loaded.task.args, "omit_eos", False))  # as in training
    if omit_eos:
        check_ends(path, dataset, eos)
    return Corpus(dataset, eos, omit_eos)


def text_of(args, loaded: LoadedModel) -> list[int]:
    """The tokens that a model reads of ``--prompt`` or the file of ``--text``, ``</s>`` first."""
    from fb_fairseq.pretrained.model import encode

    option, text = "--prompt", args.prompt
    if text is None:
        option = f"--text {args.text}"
        check_regular(args.text, or_pipe=True)
        as_bytes = byte_codec.is_byte_dictionary(loaded.dictionary)
        with open(args.text, "rb") if as_bytes else open_text(args.text) as file:
            text = byte_codec.escape(file.read()) if as_bytes else file.read()
    tokens = encode(text, loaded.dictionary.symbols, option)
    if not tokens:
        raise UserError(f"{option}: is empty; give at least one token")
    return [loaded.dictionary.eos(), *tokens]


def token_labels(tokens: Iterable[int], dictionary) -> list[str]:
    """Tokens as figures show them. Bytes are escaped as in prompts, except for a visible space."""
    symbols = [dictionary[token] for token in tokens]
    if byte_codec.is_byte_dictionary(dictionary):
        symbols = list(map(byte_codec.label, symbols))
    return list(map(without_math, symbols))


def progress(items: Iterable, loaded: LoadedModel) -> Iterable:
    """Iterate over items, with a progress bar on a terminal."""
    from tqdm import tqdm

    return tqdm(items, desc=loaded.source, disable=None, leave=False)
