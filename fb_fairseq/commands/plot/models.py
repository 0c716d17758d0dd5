"""Language models that are looked into, of a checkpoint or of an export, and the texts that they are run on.

fairseq and transformers are imported only inside functions, so that either does without the other.
"""

import os
from argparse import Namespace
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fb_fairseq import pretrained
from fb_fairseq.commands import checkpoint_of
from fb_fairseq.commands.plot.vocabulary import Vocabulary
from fb_fairseq.errors import UserError
from fb_fairseq.files import open_text
from fb_fairseq.meaning import EOS

CHOICE = "feedback_transformer_lm, relative_transformer_lm or all_attention_lm"


@dataclass
class LoadedModel:
    """A language model in evaluation mode.

    Attributes:
        path: the checkpoint, or the folder of an export.
        model: fairseq's model, or of an export a ``pretrained.LanguageModel``.
        decoder: the part of it that has the ``stack``, ``embed`` and the output layer.
        symbols: of its inputs; of an export they may be pieces of words, for which texts take transformers' tokenizer.
        options: of its training, as attributes; of an export, ``labels`` and ``omit_eos``.
        device: where it runs.
        task: fairseq's; None of an export, which needs no fairseq.
        option: the command's option that names it, for messages; empty if none does.
    """

    path: str
    model: Any
    decoder: Any
    symbols: Sequence[str]
    options: Any
    device: Any
    task: Any = None
    option: str = ""

    @property
    def source(self) -> str:
        """The option and the path, for messages."""
        return f"{self.option} {self.path}".strip()

    @property
    def stack(self) -> Any:
        """The model's layers."""
        return self.decoder.stack

    @property
    def dictionary(self) -> Any:
        """fairseq's dictionary of its inputs."""
        return self.task.source_dictionary

    @property
    def has_labels(self) -> bool:
        """Whether it gives each symbol a label, instead of the next symbol."""
        return bool(getattr(self.options, "labels", False))  # other tasks do not have it

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The symbols of its inputs."""
        tokenizer = None
        if getattr(self.decoder, "splits_words", False):
            import fb_fairseq.transformers.broken_torchaudio  # noqa: F401  before transformers is imported

            # isort: split
            from transformers import AutoTokenizer

            tokenizer = AutoTokenizer.from_pretrained(self.path)
        return Vocabulary(self.symbols, tokenizer, line_ends=not getattr(self.options, "omit_eos", False))


def load_to_read(option: str, path: str, data: str | None, cpu: bool = False) -> LoadedModel:
    """Load a language model; see ``load_model``. ``path`` may be a folder that was exported: fairseq is not needed."""
    if not os.path.isdir(pretrained.find(path)):
        return load_model(option, path, data, cpu)
    from fb_fairseq.commands.read_model import read_language_model

    model = read_language_model(path, data, cpu)
    options = Namespace(labels=model.labels, omit_eos=not model.line_ends)
    return LoadedModel(path, model, model, model.symbols, options, next(model.parameters()).device, None, option)


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
    device = torch.device("cuda" if torch.cuda.is_available() and not cpu else "cpu")
    source = f"{option} {path}".strip()
    if not isinstance(model, StreamingLanguageModel):
        raise UserError(f"{source}: is not a language model of this package; give a checkpoint of {CHOICE}")
    if model.decoder.embed_positions is not None:
        raise UserError(f"{source}: its learned positions end; give a checkpoint without --decoder-learned-pos")
    symbols = task.source_dictionary.symbols
    return LoadedModel(path, model.eval().to(device), model.decoder, symbols, task.args, device, task, option)


def check_attention(loaded: LoadedModel) -> None:
    """Check that a model attends to earlier steps."""
    if not hasattr(loaded.stack, "memory_attention"):
        raise UserError(f"{loaded.source}: attends to nothing (an LSTM); give {CHOICE}")


def load_corpus(loaded: LoadedModel, data: str | None, split: str):
    """The ``Corpus`` of a split; of labelled sequences, that of their inputs."""
    if loaded.task is None or data is None:
        raise UserError(f"{loaded.source}: give a checkpoint, and with --data the folder of the binarised text to read")
    if getattr(loaded.options, "separate_sequences", False):
        raise UserError(f"{loaded.source}: reads each sequence with an empty memory; give one with --prompt or --text")
    from fb_fairseq.streams.fairseq.corpus import Corpus, check_ends, load_indexed_dataset
    from fb_fairseq.streams.fairseq.labels import INPUT, file_prefix

    path = os.path.join(data, file_prefix(split, INPUT) if loaded.has_labels else split)
    dataset, eos = load_indexed_dataset(path, loaded.dictionary), loaded.dictionary.eos()
    omit_eos = bool(getattr(loaded.options, "omit_eos", False))
    if omit_eos:
        check_ends(path, dataset, eos)
    return Corpus(dataset, eos, omit_eos)


def text_of(loaded: LoadedModel, prompt: str | None, file: str | None) -> list[int]:
    """The tokens that a model reads of a text, ``</s>`` first.

    Args:
        prompt: the text of ``--prompt``, whose words must be known; None: that of a file.
        file: the name in ``--text``; unknown words become ``<unk>``."""
    from fb_fairseq.pretrained.model import encode

    if prompt is not None:
        tokens = encode(prompt, loaded.vocabulary.symbols)
    elif file is not None:
        with open(file, "rb") if loaded.vocabulary.of_bytes else open_text(file) as opened:
            tokens = loaded.vocabulary.encode(opened.read())
    else:
        raise UserError(f"{loaded.source}: give a short text with --prompt, or a file with --text")
    if not tokens:
        raise UserError(f"{'--prompt' if file is None else f'--text {file}'}: is empty; give at least one token")
    return [EOS, *tokens]


def progress(items: Iterable, loaded: LoadedModel) -> Iterable:
    """Iterate over items, with a progress bar on a terminal."""
    from tqdm import tqdm

    return tqdm(items, desc=loaded.source, disable=None, leave=False)
