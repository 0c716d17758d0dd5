"""Files of tensors (``torch.save``): read as data only, checked for damage, and written whole or not at all.

Reading a pickle can run any code that its author put there, so every file is read with ``weights_only=True``: tensors,
plain data, and the few classes that ``fb_fairseq.patches.safe_loading`` names. Such a file may still hold a list where
a tensor should be, lists within themselves, or sizes that would take years to build."""

import argparse
import os
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from numbers import Number
from typing import Any

import torch
from torch.nn.modules import module as torch_module

from fb_fairseq.errors import UserError, debugging, explain, names_an_option
from fb_fairseq.files import atomic_write, check_regular
from fb_fairseq.meaning import check_former

DAMAGED = "is truncated or corrupt"
# The training state (``extra_state``) of a checkpoint that no training has written: a run from it is a new one.
NEW_TRAINING = {
    "train_iterator": {"version": 2, "epoch": 1, "iterations_in_epoch": 0, "shuffle": True},
    "metrics": [],
    "previous_training_time": 0,
}
MAX_DEPTH, MAX_VALUES, MAX_OPTIONS = 50, 10**7, 20_000  # lists that are repeated in others count each time
FACTOR, MORE = 4, {"tensors": 1000, "numbers": 10**6}  # a model may have more than a file: shared ones, layers left out
_largest_read: Counter = Counter()  # how many tensors, and how many numbers in them


def load_file(path: str, mapped: bool = False) -> Any:
    """Load a file, its tensors on the CPU. ``mapped``: leave the values of tensors in the file until they are used,
    where its format allows that."""
    is_archive = check_intact(path)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped and is_archive)
        if isinstance(content, torch.nn.Module):  # older versions of torch load TorchScript too
            raise TypeError("TorchScript")
    except OSError:
        raise
    except Exception as error:  # unpickling a file of another kind can fail in any way
        raise unsafe_file(path, error) from None
    check_nesting(path, content)
    return content


def load_checkpoint(path: str, mapped: bool = False) -> dict[str, Any]:
    """Load a checkpoint as fairseq saved it.

    Import ``fb_fairseq.patches`` first: its safe globals are what fairseq's checkpoints contain beside tensors.

    ``mapped``: see ``load_file``."""
    content = load_file(path, mapped)
    check_checkpoint(path, content)
    return content


def check_intact(path: str) -> bool:
    """Check that a file can be read, and verify its checksums: ``torch.load`` does not, it takes flipped bits for data.

    Files from before torch 1.6 have no checksums, and pass.

    Returns:
        Whether the file is an archive, as torch writes it since 1.6."""
    check_regular(path)
    with open(path, "rb") as file:
        is_archive = file.read(2) == b"PK"
    if is_archive and not is_intact(path):
        raise UserError(f"{path}: {DAMAGED}; give an intact copy")
    return is_archive


def is_intact(path: str) -> bool:
    """Whether the file is a complete zip archive, as ``torch.save`` writes it, with correct checksums."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    except Exception:  # a damaged directory of the archive can raise anything: NotImplementedError, UnicodeDecodeError
        return False


def unsafe_file(path: str, error: Exception) -> UserError:
    """The error for a file that ``torch.load`` has refused; torch's own advises to switch the protection off."""
    found = re.search(r"(?:GLOBAL|global:?|class) ([\w.]+\.\w+)", str(error))
    what = f" ({found[1]})" if found else ""
    return UserError(
        f"{path}: not a checkpoint, or one with objects that are not data{what}; it was not loaded, because such "
        "objects can run any code"
    )


def save_file(content: Any, path: str) -> None:
    """Save tensors and plain data, or fail and leave what stood at ``path`` before."""
    with atomic_write(path) as temporary:
        try:
            with open(temporary, "wb") as file:
                torch.save(content, file)
        except RuntimeError as error:  # torch's, in place of "No space left on device"
            cause = error.__context__
            if isinstance(cause, OSError):
                raise OSError(cause.errno, os.strerror(cause.errno), path) from None
            raise


def bad_checkpoint(path: str, fault: str) -> UserError:
    """The error for a file whose content is not what it should be."""
    return UserError(f"{path}: {fault}; give an intact checkpoint")


def check_nesting(path: str, content: Any, limit: int = MAX_VALUES) -> None:
    """Check that lists and dictionaries are of reasonable size and depth, and not within themselves."""
    counted: dict[int, int] = {}

    def count(value: Any, depth: int) -> int:
        if id(value) not in counted and depth <= MAX_DEPTH:
            parts = vars(value) if isinstance(value, argparse.Namespace) else value
            parts = parts.values() if isinstance(parts, Mapping) else parts
            parts = parts if isinstance(value, (argparse.Namespace, Mapping, list, tuple, set)) else ()
            counted[id(value)] = 1 + sum(count(part, depth + 1) for part in parts)
        return counted.get(id(value), limit + 1)

    if count(content, 0) > limit:
        raise bad_checkpoint(path, f"its content has more than {limit:,} values, or is nested within itself")


def fault_of_tensor(value: Any) -> str | None:
    """The reason why a value is no ordinary tensor; None if it is one."""
    if not isinstance(value, torch.Tensor):
        return f"a {type(value).__name__}"
    if value.layout != torch.strided or value.is_nested or value.is_quantized or value.is_meta or value.is_complex():
        return "a sparse, quantised, complex or empty tensor"
    has_all = value.numel() * value.element_size() <= value.untyped_storage().nbytes()
    return None if has_all else f"a tensor of shape {list(value.shape)} with fewer values"


def check_parameters(path: str, parameters: Any) -> None:
    """Check that parameters are ordinary tensors by name. Their values may be anything, NaN too."""
    if not isinstance(parameters, Mapping):
        raise bad_checkpoint(path, f"model is a {type(parameters).__name__}, not parameters by name")
    for name, value in parameters.items():
        fault = fault_of_tensor(value)
        if fault or not isinstance(name, str):
            raise bad_checkpoint(path, f"model.{str(name)[:60]!s} is {fault or 'a name that is not text'}")
    for what, read in (("tensors", len(parameters)), ("numbers", sum(value.numel() for value in parameters.values()))):
        _largest_read[what] = max(_largest_read[what], read)


def check_checkpoint(path: str, content: Any) -> None:
    """Check what every reader of fairseq's checkpoints relies on: parameters, and numbers where training compares."""
    if not isinstance(content, dict) or "model" not in content:
        raise UserError(f"{path}: not a checkpoint of fairseq; give a file such as checkpoint_best.pt")
    check_parameters(path, content["model"])
    check_nesting(path, [content.get("cfg"), content.get("args")], MAX_OPTIONS)
    with using(path):
        check_former(path, model_options(content))
        state, last = content.get("extra_state") or {}, (content.get("optimizer_history") or [{}])[-1]
        found = [state.get(name, 0) for name in ("best", "val_loss", "previous_training_time")]
        found.append(last.get("lr_scheduler_state", {}).get("lr", 0))
    for value in found:
        if not (value is None or isinstance(value, Number) or isinstance(value, torch.Tensor) and value.numel() == 1):
            raise bad_checkpoint(path, f"its content has {str(value)[:60]!r} in the place of a number")


def model_options(checkpoint: dict[str, Any], part: str = "model") -> dict[str, Any]:
    """The options of a checkpoint's model, by name. ``part``: ``task`` gives those of its task; before fairseq 0.11,
    the two are one."""
    cfg = checkpoint.get("cfg")
    found = cfg.get(part) if isinstance(cfg, Mapping) else checkpoint.get("args")
    found = vars(found) if isinstance(found, argparse.Namespace) else found
    return dict(found) if isinstance(found, Mapping) else {}


def check_complete(path: str, content: dict[str, Any]) -> None:
    """Check that a checkpoint has what fairseq's commands need beside parameters."""
    options = content.get("cfg") if isinstance(content.get("cfg"), Mapping) else {}
    found = [isinstance(options.get(name), (Mapping, argparse.Namespace)) for name in ("model", "task")]
    if not (content.get("args") or all(found)):
        raise bad_checkpoint(path, "has no options (cfg) of a model and a task")
    for name, former in (("optimizer_history", "best_loss"), ("extra_state", "epoch")):
        if not content.get(name) and former not in content:
            raise bad_checkpoint(path, f"has no {name}")


@contextmanager
def using(path: str, builds_model: bool = False) -> Iterator[None]:
    """Context of building something from a checkpoint: whatever goes wrong becomes one line about this file. With
    ``builds_model``, models that are built may not be much larger than the largest one that this process has read."""
    try:
        with _no_larger_than_read(path) if builds_model else nullcontext():
            yield
    except Exception as error:  # values that do not fit the options' types fail in any function that takes them
        if explain(error) is not None or names_an_option(error) or debugging():
            raise
        lines = str(error).strip().splitlines() or [""]
        raise bad_checkpoint(path, f"its content does not fit ({type(error).__name__}: {lines[0][:200]})") from error


@contextmanager
def _no_larger_than_read(path: str) -> Iterator[None]:
    built: Counter = Counter()

    def count(owner, name, parameter) -> None:
        built.update(tensors=1, numbers=parameter.numel() if parameter is not None else 0)
        if any(built[what] > FACTOR * _largest_read[what] + MORE[what] for what in MORE):
            raise bad_checkpoint(path, "its options describe a model that is much larger than its parameters")

    with torch_module.register_module_parameter_registration_hook(count):
        yield


def check_like(path: str, value: Any, template: Any, name: Any) -> None:
    """Check that a part of a file has the keys, types and shapes of a template, in which None matches anything."""
    fits = template is None or isinstance(value, type(template))
    if fits and isinstance(template, torch.Tensor):
        fits = not fault_of_tensor(value) and (value.shape, value.dtype) == (template.shape, template.dtype)
    if not fits or isinstance(template, dict) and value.keys() != template.keys():
        raise bad_checkpoint(path, f"{name} is not like that of this run")
    for key in template if isinstance(template, dict) else ():
        check_like(path, value[key], template[key], key)


def check_optimizer(path: str, optimizer: torch.optim.Optimizer) -> None:
    """Check the state that an optimizer has loaded: the same entries for all parameters, in their shapes."""
    kinds: dict[int, Any] = {}  # (Adafactor's entries differ with the number of dimensions)
    numbers = [name for name, value in optimizer.defaults.items() if type(value) in (int, float)]
    fits = all(isinstance(group.get(name), Number) for group in optimizer.param_groups for name in numbers)
    for parameter, state in optimizer.state.items():
        entries = [(name, type(value)) for name, value in state.items()]
        fits = fits and isinstance(parameter, torch.Tensor) and kinds.setdefault(parameter.dim(), entries) == entries
        for name, value in state.items() if fits else ():
            if isinstance(value, torch.Tensor) and not name.endswith(("step", "_row", "_col")):  # (Adafactor's)
                fits = fits and not fault_of_tensor(value) and value.shape == parameter.shape
    if not fits:
        raise bad_checkpoint(path, "last_optimizer_state is not that of its parameters")
