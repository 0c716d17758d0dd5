"""A trained model, whatever it was read from.

Read by ``models/checkpoints.py`` (checkpoints of fairseq), ``pretrained/folders.py`` (folders of ``export`` and
``save_pretrained``) and ``papers/import_original`` (checkpoints of the papers' own programs). Written by
``commands/export`` (folders) and ``commands/imported.py`` (checkpoints of fairseq).
"""

import re
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn as nn
from torch import Tensor

from fb_fairseq.errors import UserError

PREFIX = "decoder."  # of a language model's parameters
TRANSLATOR = "feedback_decoder"
# What is left out of fairseq's state dicts: buffers, and the copies of parameters that fairseq 0.12.2's encoder layers
# keep for PyTorch's fused path.
FUSED_COPY = r"encoder\.layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)$"
LEFT_OUT = re.compile(rf".*\.version$|.*\._float_tensor$|{FUSED_COPY}")


@dataclass
class TrainedModel:
    """Options, parameters and dictionaries of a model, and what is known of how it was made.

    Attributes:
        path: the file or folder that it was read from, for messages.
        options: the model's, by their Python names in fairseq-train; ``arch`` is the architecture without its sizes.
        parameters: by their names in fairseq's state dict, ``decoder.layers.0.fc1.weight``.
        task: options of its task: ``labels``, ``omit_eos``, ``source_lang`` and the like.
        symbols: those of its dictionaries, in the order of the tokens, fairseq's special ones included; by the names of
            ``dictionary_names``. Empty: they are not read yet.
        splits_words: whether its tokenizer splits words into pieces, which are its symbols.
        facts: see ``fb_fairseq.facts``.
        dictionaries: checksums of the dictionaries of its training; None if they are not known.
    """

    path: str
    options: dict[str, Any]
    parameters: dict[str, Tensor]
    task: dict[str, Any] = field(default_factory=dict)
    symbols: dict[str, list[str]] = field(default_factory=dict)
    splits_words: bool = False
    facts: dict[str, Any] = field(default_factory=dict)
    dictionaries: Any = None

    @property
    def architecture(self) -> str:
        """The kind of the model, ``feedback_transformer_lm``."""
        return str(self.options.get("arch"))

    @property
    def translates(self) -> bool:
        """Whether it is a translation model, with two dictionaries."""
        return self.architecture == TRANSLATOR

    def dictionary_names(self) -> list[str]:
        """The names of the files of its dictionaries, that of the inputs first."""
        if self.translates:
            return [f"dict.{self.task[side]}.txt" for side in ("source_lang", "target_lang")]
        return ["dict.input.txt", "dict.label.txt"] if self.task.get("labels") else ["dict.txt"]

    def error(self, problem: str) -> UserError:
        """An error that names the file."""
        return UserError(f"{self.path}: {problem}")

    def options_as(self, kind: type) -> Any:
        """The options as an object of a class; those that are not known have its defaults.

        Args:
            kind: the class, such as ``TransformerOptions``.
        """
        return kind(**{name: self.options[name] for name in kind.__dataclass_fields__ if name in self.options})

    @torch.no_grad()
    def fill(self, model: nn.Module, prefix: str = "") -> None:
        """Give a model the parameters. Refused unless it has exactly these.

        Args:
            model: is changed.
            prefix: what the names have before those of ``model``.
        """
        own = {f"{prefix}{name}": p for name, p in model.named_parameters() if not LEFT_OUT.match(name)}
        found = self.parameters
        known = {f"{prefix}{name}" for name in model.state_dict()}
        misfits = [name for name, p in own.items() if name not in found or found[name].shape != p.shape]
        misfits += [name for name in found if name not in known]
        if misfits:
            raise self.error(
                f"{', '.join(misfits[:3])}: not as its own options say; give a complete copy of a model that was "
                "trained with this package"
            )
        for name, parameter in own.items():
            parameter.copy_(found[name])
