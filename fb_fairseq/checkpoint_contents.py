"""The shape of what checkpoints hold: every reader passes these checks, and relies on them.

A file that is loaded as data only may still hold a list where a tensor should be, options that refer to themselves, or
sizes that would take years to build.
"""

import argparse
import math
from collections import Counter
from contextlib import contextmanager, nullcontext
from enum import Enum
from numbers import Number
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Sequence, Tuple

import numpy as np
import torch
from torch.nn.modules import module as torch_module

from fb_fairseq.errors import UserError, debugging, explain, names_an_option

PLAIN = (type(None), Number, str, bytes, bytearray, Enum, np.ndarray, torch.Tensor, torch.dtype, torch.device)
MAX_DEPTH = 50  # of lists in lists
# Lists that are repeated within others count as often as they would be written.
MAX_VALUES = 10**7
MAX_OPTIONS = 20_000
SHOWN = 60  # characters of a name in a message
# A model that is built for a file's parameters may have some more: shared ones count twice, and layers may be left out.
FACTOR, MORE = 4, {"tensors": 1000, "numbers": 10**6}

Keys = Tuple[Any, ...]


def unusable(path: str, fault: str) -> UserError:
    """The error for a file whose content is not what it should be."""
    return UserError(f"{path}: {fault}; give an intact checkpoint")


def name_of(keys: Keys) -> str:
    """How a message names a part of a file: ``model.decoder.embed_tokens.weight``."""
    name = ".".join(map(str, keys)) or "its content"
    return name if len(name) <= SHOWN else name[:SHOWN] + "…"


def items(value: Any) -> Iterator[Tuple[Any, Any]]:
    """The parts of a container by key or place; of other values none."""
    if isinstance(value, argparse.Namespace):
        yield from vars(value).items()
    elif isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, (Sequence, set)) and not isinstance(value, (str, bytes, bytearray)):
        yield from enumerate(value)


def check_plain(path: str, content: Any, limit: int = MAX_VALUES) -> None:
    """Check that a file holds plain values in lists and dictionaries of reasonable size, and nothing within itself.

    Raises:
        UserError: it holds something else.
    """
    counted: Dict[int, Tuple[int, Any]] = {}  # with the value itself, so that it keeps its id

    def count(value: Any, keys: Keys) -> int:
        if isinstance(value, PLAIN):
            return 1
        if not isinstance(value, (argparse.Namespace, Mapping, Sequence, set)):
            raise unusable(path, f"{name_of(keys)} is a {type(value).__name__}, not data")
        if len(keys) > MAX_DEPTH:
            raise unusable(path, f"{name_of(keys)} is nested too deeply, or within itself")
        if id(value) not in counted:
            number = 1 + sum(count(part, (*keys, key)) for key, part in items(value))
            counted[id(value)] = number, value
        if counted[id(value)][0] > limit:
            raise unusable(path, f"{name_of(keys)} has more than {limit:,} values")
        return counted[id(value)][0]

    count(content, ())


def check_parameters(path: str, parameters: Any) -> None:
    """Check that parameters are ordinary tensors by name. Their values may be anything, NaN too.

    Raises:
        UserError: one of them is not.
    """
    if not isinstance(parameters, Mapping):
        raise unusable(path, f"model is a {type(parameters).__name__}, not parameters by name")
    for name, value in parameters.items():
        if not isinstance(name, str):
            raise unusable(path, f"model has a parameter with the name {str(name)[:SHOWN]!r}, which is not text")
        fault = fault_of_tensor(value)
        if fault:
            raise unusable(path, f"{name_of(('model', name))} is {fault}, not a tensor of numbers")
    for what, read in (("tensors", len(parameters)), ("numbers", sum(value.numel() for value in parameters.values()))):
        _largest_read[what] = max(_largest_read[what], read)


def fault_of_tensor(value: Any) -> Optional[str]:
    """Why a value is no ordinary tensor; None if it is one."""
    if not isinstance(value, torch.Tensor):
        return f"a {type(value).__name__}"
    if value.layout != torch.strided or value.is_nested or value.is_quantized or value.is_meta or value.is_complex():
        return "a sparse, quantised, complex or empty tensor"
    if value.numel() * value.element_size() > value.untyped_storage().nbytes():
        return f"a tensor of shape {list(value.shape)} with fewer values"
    return None


# Predicates for the parts of a checkpoint.


def is_number(value: Any) -> bool:
    """Whether it is one number, as Python's, numpy's or a tensor."""
    if isinstance(value, torch.Tensor):
        return value.numel() == 1 and not fault_of_tensor(value)
    return isinstance(value, Number) and not isinstance(value, (bool, complex))


def is_count(value: Any) -> bool:
    """Whether it is a whole number that fits 64 bits, 0 or more."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and 0 <= value < 2**63


def is_number_or_none(value: Any) -> bool:
    """See ``is_number``."""
    return value is None or is_number(value)


def is_text(value: Any) -> bool:
    """Whether it is text."""
    return isinstance(value, str)


def is_options(value: Any) -> bool:
    """Whether it is options by name, in whichever form fairseq has saved them."""
    return isinstance(value, (Mapping, argparse.Namespace)) and all(isinstance(key, str) for key, _ in items(value))


def is_group(value: Any) -> bool:
    """Whether it is values by name."""
    return isinstance(value, dict) and is_options(value)


def is_group_or_none(value: Any) -> bool:
    """See ``is_group``."""
    return value is None or is_group(value)


def is_history(value: Any) -> bool:
    """Whether it is a list of groups with at least one."""
    return isinstance(value, list) and bool(value) and all(map(is_group, value))


def is_list_of_meters(value: Any) -> bool:
    """Whether it is what ``MetersDict.state_dict`` of fairseq returns."""
    return isinstance(value, list) and all(
        isinstance(meter, (tuple, list))
        and len(meter) == 4
        and is_number(meter[0])
        and is_text(meter[1])
        and str(meter[2]).endswith("Meter")
        and is_group(meter[3])
        and all(is_number_or_none(entry) or isinstance(entry, np.ndarray) for entry in meter[3].values())
        for meter in value
        if not (isinstance(meter, (tuple, list)) and "ConcatTensorMeter" in meter)
    )


def is_metrics(value: Any) -> bool:
    """Whether it holds fairseq's meters by name."""
    return value == [] or is_group(value) and all(map(is_list_of_meters, value.values()))


LAST = -1  # the last entry of a list
ITERATOR = ("extra_state", "train_iterator")
HISTORY = ("optimizer_history", LAST)
OPTIMIZER = "last_optimizer_state"
# What the parts of a checkpoint must be, where it has them.
PARTS: Dict[Keys, Tuple[Callable[[Any], bool], str]] = {
    ("cfg",): (lambda value: value is None or is_options(value), "options by name"),
    ("cfg", "model"): (is_options, "options by name"),
    ("cfg", "task"): (is_options, "options by name"),
    ("args",): (lambda value: value is None or isinstance(value, argparse.Namespace), "options by name"),
    ("task_state",): (is_group, "values by name"),
    ("extra_state",): (is_group, "values by name"),
    ("extra_state", "metrics"): (is_metrics, "meters by name"),
    **{
        ("extra_state", name): (is_number_or_none, "a number") for name in ("best", "val_loss", "epoch", "batch_offset")
    },
    ("extra_state", "previous_training_time"): (is_number, "a number"),
    ITERATOR: (is_group_or_none, "values by name"),
    **{(*ITERATOR, name): (is_count, "a count") for name in ("epoch", "iterations_in_epoch", "version")},
    (*ITERATOR, "streams"): (is_group_or_none, "a position"),
    (*ITERATOR, "run"): (lambda value: value is None or is_text(value), "a name"),
    HISTORY[:1]: (is_history, "a list of values by name"),
    (*HISTORY, "num_updates"): (is_count, "a count"),
    **{(*HISTORY, name): (is_text, "a name") for name in ("criterion_name", "optimizer_name")},
    (*HISTORY, "lr_scheduler_state"): (is_group, "values by name"),
    (*HISTORY, "lr_scheduler_state", "lr"): (is_number, "a number"),
    (*HISTORY, "lr_scheduler_state", "best"): (is_number_or_none, "a number"),
    (OPTIMIZER,): (lambda value: value is None or isinstance(value, dict), "values by name"),
    (OPTIMIZER, "state"): (lambda value: isinstance(value, dict), "states by number"),
    (OPTIMIZER, "param_groups"): (is_history, "a list of values by name"),
}


def check_checkpoint(path: str, content: Any) -> None:
    """Check what every reader of fairseq's checkpoints relies on: parameters, and the shape of all other parts.

    Raises:
        UserError: the file holds no model, or a part is not what it should be.
    """
    if not isinstance(content, dict) or "model" not in content:
        raise UserError(f"{path}: not a checkpoint of fairseq; give a file such as checkpoint_best.pt")
    check_parameters(path, content["model"])
    for name in ("cfg", "args"):
        check_plain(path, {name: content.get(name)}, MAX_OPTIONS)
    for keys, (is_right, what) in PARTS.items():
        for value in part(content, keys):
            if not is_right(value):
                shown = f"a {type(value).__name__}" if not isinstance(value, (*PLAIN[:3],)) else repr(value)[:SHOWN]
                named = name_of(tuple(key for key in keys if key != LAST))
                raise unusable(path, f"{named} is {shown}, not {what}")


def part(content: Any, keys: Keys) -> Iterator[Any]:
    """The part of a checkpoint under some keys, if it has it."""
    for key in keys:
        if key == LAST:
            content = content[LAST]
            continue
        values = dict(items(content))
        if key not in values:
            return
        content = values[key]
    yield content


def check_complete(path: str, content: Dict[str, Any]) -> None:
    """Check that a checkpoint has what fairseq's commands need beside parameters.

    Raises:
        UserError: it has not.
    """
    options = content.get("args") or content.get("cfg")
    if options is None:
        raise unusable(path, "has no options (cfg)")
    for name in ("model", "task") if content.get("args") is None else ():
        if not any(part(content, ("cfg", name))):
            raise unusable(path, f"its options (cfg) have no {name}")
    for name, older in (("optimizer_history", "best_loss"), ("extra_state", "epoch")):
        if name not in content and older not in content:
            raise unusable(path, f"has no {name}")


# What is checked while a checkpoint is used.


@contextmanager
def using(path: str, builds_model: bool = False) -> Iterator[None]:
    """Context of building something from a checkpoint: whatever goes wrong becomes one line about this file.

    Args:
        builds_model: models are built here from options in checkpoints; they may not be much larger than the largest
            that this process has read.

    Raises:
        UserError: building failed.
    """
    try:
        with _no_larger_than_read(path) if builds_model else nullcontext():
            yield
    except Exception as error:  # of values that are not what the options' types say, in whichever function takes them
        if explain(error) is not None or names_an_option(error) or debugging():
            raise
        lines = str(error).strip().splitlines() or [""]
        raise unusable(path, f"its content does not fit ({type(error).__name__}: {lines[0][:200]})") from error


_largest_read = Counter()  # how many tensors, and how many numbers in them


@contextmanager
def _no_larger_than_read(path: str) -> Iterator[None]:
    built: Counter = Counter()

    def count(owner, name, parameter) -> None:
        built.update(tensors=1, numbers=parameter.numel() if parameter is not None else 0)
        if any(built[what] > FACTOR * _largest_read[what] + MORE[what] for what in MORE):
            raise unusable(path, "its options describe a model that is much larger than its parameters")

    handle = torch_module.register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        handle.remove()


def check_like(path: str, value: Any, template: Any, keys: Keys = ()) -> None:
    """Check that a part of a file has the keys, types and shapes of a template; None there stands for anything.

    Raises:
        UserError: it has others.
    """
    if isinstance(template, dict):
        fault = None if isinstance(value, dict) and value.keys() == template.keys() else "has other entries"
    elif isinstance(template, torch.Tensor):
        fault = fault_of_tensor(value)
        if not fault and (value.shape, value.dtype) != (template.shape, template.dtype):
            fault = "of another shape or type"
    else:
        fault = None if template is None or isinstance(value, type(template)) else f"a {type(value).__name__}"
    if fault:
        raise unusable(path, f"{name_of(keys)} {fault if fault.startswith('has') else 'is ' + fault}")
    for key, part_of_template in template.items() if isinstance(template, dict) else ():
        check_like(path, value[key], part_of_template, (*keys, key))


STATES = {"Adam": ("step", "exp_avg", "exp_avg_sq")}  # what an optimizer keeps of each parameter
TENSORS = ("exp_avg", "exp_avg_sq", "momentum_buffer", "square_avg", "sum")  # not numbers
FACTORS = ("exp_avg_sq_row", "exp_avg_sq_col")  # of Adafactor, in other shapes


def check_optimizer(path: str, optimizer: torch.optim.Optimizer) -> None:
    """Check an optimizer that has loaded its state from a checkpoint.

    Raises:
        UserError: the state is not one of this optimizer and its parameters.
    """
    for group in optimizer.param_groups:
        for name, default in optimizer.defaults.items():
            if not _is_like(group.get(name), default):
                raise unusable(path, f"{OPTIMIZER}: {name} is {str(group.get(name))[:SHOWN]}")
    for parameter, state in optimizer.state.items():
        if not isinstance(parameter, torch.Tensor):
            raise unusable(path, f"{OPTIMIZER}: has the state of a parameter that the model does not have")
        missing = [name for name in STATES.get(type(optimizer).__name__, ()) if name not in state]
        if missing:
            raise unusable(path, f"{OPTIMIZER}: {missing[0]} of a parameter is missing")
        for name, value in state.items():
            same = isinstance(value, torch.Tensor) and not fault_of_tensor(value) and value.shape == parameter.shape
            if not (same or is_number(value) and name not in TENSORS or name in FACTORS):
                raise unusable(path, f"{OPTIMIZER}: {name} of a parameter {list(parameter.shape)} has another shape")


def _is_like(value: Any, default: Any) -> bool:
    if isinstance(default, (tuple, list)):
        return isinstance(value, (tuple, list)) and len(value) == len(default) and all(map(_is_like, value, default))
    if isinstance(default, (int, float)) and not isinstance(default, bool):
        return is_number(value) and math.isfinite(value)
    return True
