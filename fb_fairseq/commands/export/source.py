"""What is exported: a checkpoint of fairseq, its options and its dictionaries."""

import os
from typing import Any, Dict, NamedTuple, Optional

from fb_fairseq.errors import UserError


class Source(NamedTuple):
    """A checkpoint, and what the command's options say of it.

    Attributes:
        path: the file.
        saved: its content.
        options: those of its model, flat.
        architecture: the model's name, without that of its sizes: ``feedback_transformer_lm``.
        dictionaries: value of ``--dict``.
        codes: value of ``--bpe-codes``.
    """

    path: str
    saved: Dict[str, Any]
    options: Dict[str, Any]
    architecture: str
    dictionaries: Optional[str]
    codes: Optional[str]

    def values(self, defaults: Dict[str, Any]) -> Dict[str, Any]:
        """The checkpoint's options among those that a configuration has, as plain values.

        Args:
            defaults: the configuration's.
        """
        found = {name: self.options[name] for name in defaults if self.options.get(name) is not None}
        return {name: plain(value) for name, value in found.items()}

    def dictionary(self, name: str):
        """A dictionary of the training data: that of ``--dict`` (the file itself, or its folder), of the data folder,
        or the one beside the checkpoint.

        Args:
            name: of the file, ``dict.txt``.

        Raises:
            UserError: there is none.
        """
        from fairseq.data import Dictionary

        data = str(self.saved["cfg"]["task"].get("data") or "").split(":")[0]
        folders = [folder for folder in (data, os.path.dirname(os.path.abspath(self.path))) if folder]
        if self.dictionaries:
            folders = [self.dictionaries]
        candidates = [os.path.join(folder, name) for folder in folders]
        if self.dictionaries and (name == "dict.txt" and not os.path.isdir(self.dictionaries)):
            candidates = [self.dictionaries]
        for candidate in candidates:
            if os.path.isfile(candidate):
                return Dictionary.load(candidate)
        what = f"the {name}" if name == "dict.txt" else f"the folder with {name}"
        raise UserError(f"--dict {candidates[0]}: no such file; give {what} of the data that the model was trained on")


def plain(value: Any) -> Any:
    """An option's value as JSON has it; lists as on the command line."""
    if isinstance(value, (bool, int, float)):
        return value
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def read(path: str, dictionaries: Optional[str], codes: Optional[str]) -> Source:
    """Read a checkpoint.

    Raises:
        UserError: it is not one of fairseq-train, or predicts labels.
    """
    from fairseq.models import ARCH_MODEL_NAME_REGISTRY

    import fb_fairseq.models  # noqa: F401  registers the architectures
    from fb_fairseq import tensor_files
    from fb_fairseq.commands.plot.checkpoints import model_options

    saved = tensor_files.load_checkpoint(path)
    if saved.get("cfg") is None:
        raise UserError(f"{path}: has no options (cfg); give a checkpoint of fairseq-train")
    if saved["cfg"]["task"].get("labels"):
        raise UserError(
            f"{path}: predicts labels, not the next symbol; give a checkpoint that was trained without --labels"
        )
    options = model_options(saved)
    name = str(options.get("_name") or options.get("arch"))
    return Source(path, saved, options, ARCH_MODEL_NAME_REGISTRY.get(name, name), dictionaries, codes)


def load_parameters(source: Source, model) -> None:
    """Give a model the checkpoint's parameters.

    Raises:
        UserError: names or shapes are not those of the model.
    """
    from fb_fairseq.models.vanilla_checkpoint import NO_PARAMETERS

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
