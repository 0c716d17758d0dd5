"""Errors of fairseq and PyTorch: what the user reads of them, and the option that is named."""

import re
import sys
from argparse import ArgumentParser, Namespace
from types import SimpleNamespace

import pytest
import torch

from fb_fairseq import patches  # noqa: F401  before fairseq is used
from fb_fairseq.errors import OUTPUT_CLOSED_STATUS, UserError, explain
from fb_fairseq.patches import early_errors
from fb_fairseq.patches.command_line import check_values
from fb_fairseq.patches.early_errors import early_line, given_options, option_at_fault, updates_done
from fb_fairseq.patches.error_lines import one_line, report
from fb_fairseq.patches.error_remedies import REMEDIES, remedy


@pytest.fixture
def command_line(monkeypatch):
    """Sets the words of the command line."""
    return lambda *words: monkeypatch.setattr(sys, "argv", ["fairseq-train", *words])


def raised_by(function, *arguments):
    """The error that a function raises, and its traceback."""
    with pytest.raises(Exception) as found:
        function(*arguments)
    return found.value, found.tb


def test_given_options(command_line):
    command_line("data", "--lr", "", "--cpu", "--max-update=3", "--seed", "-1", "+model.attention_span=abc", "a b=c")
    assert given_options() == {
        "lr": "--lr ''",
        "cpu": "--cpu",
        "max_update": "--max-update=3",
        "seed": "--seed -1",
        "attention_span": "+model.attention_span=abc",
    }


def set_seed(cfg):
    import numpy

    numpy.random.seed(cfg.common.seed)


def loads_nothing(args):
    if args.load_it:
        raise RuntimeError


def without_layers(args):
    raise RuntimeError("no layers")


def anywhere(args):
    raise RuntimeError("something")


@pytest.mark.parametrize(
    "function,found",
    [
        (set_seed, "--seed -1"),  # named by the line
        (loads_nothing, "--load-it"),  # by a condition above
        (without_layers, "--layers 3"),  # by the message
        (anywhere, None),
    ],
)
def test_which_option_is_at_fault(command_line, function, found):
    command_line("--seed", "-1", "--load-it", "--layers", "3", "--lr", "2")
    assert option_at_fault(*raised_by(function, Namespace(common=Namespace(seed=-1), load_it=True))) == found


def test_the_option_that_chose_a_class(command_line):
    from fairseq.criterions.ctc import CtcCriterion

    command_line("--criterion", "ctc")
    criterion = SimpleNamespace(forward=CtcCriterion.forward)
    assert option_at_fault(*raised_by(criterion.forward, criterion, None, {})) == "--criterion ctc"


def test_the_key_of_a_configuration_error(command_line):
    """With the override of hydra's command line, or as an option where a file has the value."""
    from fairseq.dataclass.configs import DatasetConfig
    from omegaconf import OmegaConf

    error, traceback = raised_by(setattr, OmegaConf.structured(DatasetConfig), "batch_size", "abc")
    command_line("dataset.batch_size=abc")
    assert option_at_fault(error, traceback) == "dataset.batch_size=abc"
    command_line("--config-dir", "x")
    assert option_at_fault(error, traceback) == "--batch-size"


def test_a_value_that_hydra_cannot_merge(command_line, monkeypatch):
    from fairseq.dataclass.configs import DatasetConfig
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from omegaconf import OmegaConf

    configuration = OmegaConf.create({"dataset": OmegaConf.structured(DatasetConfig)})
    overrides = OverridesParser.create().parse_overrides(["dataset.batch_size=abc"])
    error, traceback = raised_by(ConfigLoaderImpl._apply_overrides_to_config, overrides, configuration)
    command_line("dataset=x", "dataset.batch_size=abc")
    monkeypatch.setattr(early_errors, "_in_libraries", lambda frames: True)
    line = early_line(error, traceback)  # (omegaconf 2.3 names the type of the value)
    assert re.match(r"dataset\.batch_size=abc: Value 'abc' (of type 'str' )?could not be converted", line), line


def test_an_option_that_cannot_be_converted(command_line):
    """argparse itself reports ValueErrors only."""
    parser = ArgumentParser()
    parser.add_argument("-m", "--maximum", type=lambda text: compile(text, "x", "eval"))
    error, traceback = raised_by(parser.parse_args, ["--maximum", "%s"])
    assert isinstance(error, SyntaxError) and option_at_fault(error, traceback) == "--maximum %s"


def test_an_option_that_fairseq_cannot_convert(command_line):
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    command_line("--update-epoch-batch-itr=%s")
    error, traceback = raised_by(convert_namespace_to_omegaconf, Namespace(update_epoch_batch_itr="%s"))
    assert option_at_fault(error, traceback) == "--update-epoch-batch-itr=%s"


def test_errors_in_the_users_own_code_keep_their_traceback(monkeypatch):
    error, traceback = raised_by(anywhere, None)
    assert early_line(error, traceback) is None and one_line(error, traceback) is None
    folders = list(early_errors._library_folders())
    monkeypatch.setattr(early_errors, "_library_folders", lambda: [*folders, __file__.rpartition("/")[0]])
    assert early_line(error, traceback) == "something; FB_FAIRSEQ_DEBUG=1 shows where"
    error, traceback = raised_by(dict().__getitem__, "ema")
    assert early_line(error, traceback) == "KeyError: 'ema'; FB_FAIRSEQ_DEBUG=1 shows where"


def test_errors_after_the_first_update_keep_their_traceback(monkeypatch):
    from fairseq.trainer import Trainer

    trainer = Trainer.__new__(Trainer)
    trainer._num_updates = 3
    monkeypatch.setattr(early_errors, "_in_libraries", lambda frames: True)

    def step(trainer, error):
        raise error

    error, traceback = raised_by(step, trainer, RuntimeError("something"))
    assert updates_done(traceback) == 3 and one_line(error, traceback) is None
    error, traceback = raised_by(step, trainer, FloatingPointError("gradients are Nan/Inf"))
    assert "NaN or infinite at update 4; try a lower --lr" in one_line(error, traceback)
    later = StopIteration()
    later.__context__ = error  # raised while fairseq looks where the NaN comes from
    assert one_line(later, None) == one_line(error, traceback)


@pytest.mark.parametrize("entry", REMEDIES, ids=lambda entry: entry.pattern[:30])
def test_every_remedy_names_an_option(entry):
    assert "--" in entry.line or "{option}" in entry.line


def test_remedies_of_an_option_need_it(command_line):
    error = RuntimeError("Torch not compiled with CUDA enabled")
    command_line("--profile")
    assert remedy(error).startswith("--profile: needs a GPU")
    command_line()
    assert remedy(error) == "PyTorch finds no GPU that it can use; add --cpu"


@pytest.mark.parametrize(
    "error,line",
    [
        (
            ModuleNotFoundError("No module named 'nosuch'", name="nosuch.part"),
            "nosuch is not installed; pip install nosuch",
        ),
        (ModuleNotFoundError("", name="yaml_nosuch"), "yaml_nosuch is not installed; pip install yaml_nosuch"),
        (ImportError("Please install apex to use it"), "Please install apex to use it: see https://github.com/NVIDIA"),
        (ImportError("Please install editdistance to"), "Please install editdistance to: pip install editdistance"),
        (ImportError("\n\nPlease install it:\n\n  pip install fairscale"), "Please install it: pip install fairscale"),
        (ModuleNotFoundError("", name="torch.nosuch"), None),  # torch is there
        (ImportError("cannot import name 'x' from 'y'"), None),
        (RuntimeError("DefaultCPUAllocator: you tried to allocate 4000000000000 bytes"), "tensor needs 4,000 GB"),
        (RuntimeError("Storage size calculation overflowed"), "out of memory"),
        (RuntimeError("I/O error: File too large (os error 27)"), None),  # (named by the file's writer)
        (FileExistsError("words-bin/dict.txt"), "words-bin/dict.txt: exists already; remove it, or choose another"),
    ],
)
def test_packages_and_memory(error, line):
    assert explain(error) is None if line is None else line in explain(error)


def test_a_tensor_that_does_not_fit():
    with pytest.raises(RuntimeError) as found:
        torch.empty(10**15)
    assert explain(found.value) == "out of memory: a single tensor needs 4,000,000 GB; use smaller sizes"


def test_a_closed_output_is_no_error(monkeypatch):
    forgotten = []
    monkeypatch.setattr("fb_fairseq.patches.error_lines.forget_output", lambda: forgotten.append(1))
    with pytest.raises(SystemExit) as stop:
        report(lambda *unused: pytest.fail("printed"), BrokenPipeError, BrokenPipeError(32, "Broken pipe"), None)
    assert stop.value.code == OUTPUT_CLOSED_STATUS and forgotten


@pytest.mark.parametrize("value", ["0.9", "(0.9,)", "(0.9, 0.98, 0.99)", "abc", "", "('a', 'b')", "[]", [0.9], 3])
def test_pairs(value):
    with pytest.raises(UserError, match="--adam-betas .*two numbers in parentheses"):
        check_values({"adam_betas": value})


def test_values(command_line):
    check_values({"adam_betas": "(0.9, 0.98)", "lr": [0.1], "seed": 2**32 - 1, "data": [], "fp16_scale_window": None})
    check_values({"adam_betas": [0.9, 0.98], "fp16_init_scale": 4})
    for name, value, message in (
        ("lr", [], "--lr: is empty"),
        ("update_freq", [], "--update-freq: is empty"),
        ("seed", 2**32, "--seed 4294967296: must be from 0 to 4294967295"),
        ("seed", -1, "--seed -1"),
        ("attention_span", 10**20, "--attention-span 100000000000000000000: is too large"),
        ("fp16_init_scale", 0, "--fp16-init-scale 0"),
    ):
        with pytest.raises(UserError, match=message):
            check_values({name: value})
