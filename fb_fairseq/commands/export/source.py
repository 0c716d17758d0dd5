"""The source of an export: a checkpoint of fairseq, its options and its dictionaries."""

import os
from typing import Any, NamedTuple

from fb_fairseq.checksums import check_dictionaries, dictionary_checksums, trained_dictionaries
from fb_fairseq.errors import UserError

Languages = tuple[str | None, str | None]  # source and target


class Source(NamedTuple):
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
        return {name: plain(value) for name, value in found.items()}

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
                    raise UserError(
                        f"{candidate}: has {len(found)} symbols, the model {symbols}; give that of the training data "
                        "with --dict"
                    )
                own = dictionary_checksums({"source" if side == "encoder" else "target": found})
                check_dictionaries(f"--dict {candidate}: {self.path}", trained_dictionaries(self.saved), own)
                return found
        what = f"the {name}" if name == "dict.txt" else f"the folder with {name}"
        raise UserError(f"--dict {candidates[0]}: no such file; give {what} of the data that the model was trained on")


def plain(value: Any) -> Any:
    """An option's value as JSON has it; lists as on the command line."""
    if isinstance(value, (bool, int, float)):
        return value
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def as_dictionary(options: Any) -> dict[str, Any]:
    """Options that fairseq may have saved as a ``Namespace``, or not at all."""
    return options if isinstance(options, dict) else vars(options) if options is not None else {}


def read(path: str, dictionaries: str | None, codes: str | None, languages: Languages) -> Source:
    """Read a checkpoint."""
    from fairseq.models import ARCH_MODEL_NAME_REGISTRY

    import fb_fairseq.models  # noqa: F401  registers the architectures
    from fb_fairseq import tensor_files

    saved = tensor_files.load_checkpoint(path)
    if saved.get("cfg") is None:
        raise UserError(f"{path}: has no options (cfg); give a checkpoint of fairseq-train")
    task = as_dictionary(saved["cfg"].get("task"))
    if task.get("labels"):
        raise UserError(
            f"{path}: predicts labels, not the next symbol; give a checkpoint that was trained without --labels"
        )
    options = as_dictionary(saved["cfg"]["model"])
    name = str(options.get("_name") or options.get("arch"))
    architecture = ARCH_MODEL_NAME_REGISTRY.get(name, name)
    return Source(path, saved, options, task, architecture, dictionaries, codes, languages)


def load_parameters(source: Source, model) -> None:
    """Give a model the checkpoint's parameters."""
    from fb_fairseq.models.checkpoints import NO_PARAMETERS

    expected, found = (
        {name: x for name, x in state.items() if not NO_PARAMETERS.match(name)}
        for state in (model.state_dict(), source.saved["model"])
    )
    misfits = [name for name in expected if name not in found or found[name].shape != expected[name].shape]
    misfits += [name for name in found if name not in expected]
    if misfits:
        raise UserError(
            f"{source.path}: {', '.join(misfits[:3])}: not as its own options say; give a complete checkpoint of a "
            "model that was trained with this package"
        )
    model.load_state_dict(found, strict=False)
    model.eval()
