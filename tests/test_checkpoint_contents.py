"""What checkpoints may hold: every part is checked, in one line that names the file and the part."""

import argparse
import copy

import pytest
import torch

from fb_fairseq import tensor_files
from fb_fairseq.errors import UserError
from fb_fairseq.tensor_files import check_like, check_nesting, check_optimizer, using
from tests.damage import ODD_VALUES, expanding, with_value, within_itself

GOOD = {
    "cfg": {"model": {"_name": "x", "decoder_layers": 2}, "task": {"_name": "y"}},
    "model": {"w": torch.full((2, 3), float("nan")), "scale": torch.ones(())},
    "optimizer_history": [{"optimizer_name": "b", "lr_scheduler_state": {"lr": 0.1, "best": None}, "num_updates": 3}],
    "last_optimizer_state": {"state": {}, "param_groups": [{"lr": 0.1}]},
    "task_state": {},
    "extra_state": {
        "metrics": {"train": [(10, "loss", "AverageMeter", {"val": 1.0, "sum": torch.ones(()), "round": 3})]},
        "best": 1.5,
        "val_loss": None,
        "previous_training_time": 2.0,
        "train_iterator": {"epoch": 1, "iterations_in_epoch": 0, "version": 2, "run": "x", "streams": None},
    },
}


def check(content):
    check_nesting("x.pt", content)
    tensor_files.check_checkpoint("x.pt", content)
    tensor_files.check_complete("x.pt", content)


def test_what_is_right_passes():
    check(GOOD)
    check({**GOOD, "cfg": None, "args": argparse.Namespace(arch="x")})  # of older releases of fairseq


@pytest.mark.parametrize(
    "keys, odd",
    [
        (("model",), "None"),
        (("model",), "other keys"),
        *((("model", "w"), odd) for odd in ("None", "nested list", "sparse", "complex", "expanded", "array")),
        *((("cfg",), odd) for odd in ("None", "text", "nested list", "empty dict")),
        *((("cfg", "model"), odd) for odd in ("deleted", "None", "text", "within itself", "expanding")),
        (("cfg", "task"), "deleted"),
        (("optimizer_history",), "empty list"),
        (("optimizer_history", 0, "lr_scheduler_state", "lr"), "text"),
        (("extra_state",), "deleted"),
        (("extra_state", "best"), "text"),
    ],
)
def test_what_is_wrong_is_named(keys, odd):
    with pytest.raises(UserError) as error:
        check(with_value(GOOD, keys, ODD_VALUES[odd]()))
    message = str(error.value)
    assert message.startswith("x.pt: ") and "\n" not in message and len(message) < 200
    assert str(keys[-1]) in message or str(keys[0]) in message or "its content" in message


@pytest.mark.parametrize("make", [within_itself, expanding])
def test_lists_that_are_too_large(make):
    with pytest.raises(UserError, match="its content has more than 10,000,000 values, or is nested within"):
        check_nesting("x.pt", {"a": [make()]})


def test_a_model_much_larger_than_its_parameters_is_not_built():
    """It takes no longer than building what is allowed."""
    tensor_files.check_parameters("x.pt", {"w": torch.zeros(2, 2)})
    with pytest.raises(UserError, match="x.pt: its options describe a model that is much larger"):
        with using("x.pt", builds_model=True):
            torch.nn.ModuleList(torch.nn.Linear(1, 1) for _ in range(10**9))
    with using("x.pt", builds_model=True):
        torch.nn.Linear(2, 2)
    torch.nn.Linear(1000, 10**4)  # the limit holds inside only


def test_what_goes_wrong_while_it_is_used_is_one_line(monkeypatch):
    monkeypatch.delenv("FB_FAIRSEQ_DEBUG", raising=False)
    with pytest.raises(UserError, match=r"^x.pt: its content does not fit \(KeyError: 'a'\); give an intact"):
        with using("x.pt"):
            {}["a"]
    with pytest.raises(FileNotFoundError), using("x.pt"):
        open("missing")
    monkeypatch.setenv("FB_FAIRSEQ_DEBUG", "1")
    with pytest.raises(KeyError), using("x.pt"):
        {}["a"]


@pytest.fixture
def trained():
    """An optimizer's parameters and its state after a step."""
    weights = [torch.nn.Parameter(torch.ones(2, 3)) for _ in range(2)]
    optimizer = torch.optim.Adam(weights)
    sum(weights).sum().backward()
    optimizer.step()
    return weights, optimizer.state_dict()


def restored(trained, change):
    """An optimizer that has loaded a state in which something was changed."""
    weights, saved = trained
    saved = copy.deepcopy(saved)
    change(saved)
    optimizer = torch.optim.Adam(weights)
    optimizer.load_state_dict(saved)
    return optimizer


def test_an_optimizers_state(trained):
    check_optimizer("x.pt", restored(trained, lambda saved: None))


@pytest.mark.parametrize(
    "change",
    [
        lambda saved: saved["state"][0].update(exp_avg=torch.zeros(3)),
        lambda saved: saved["state"][0].update(exp_avg=1.0),
        lambda saved: saved["state"][0].pop("exp_avg_sq"),
        lambda saved: saved["state"][0].update(exp_avg=torch.zeros(())),
        lambda saved: saved["param_groups"][0].update(eps=None),
    ],
)
def test_an_optimizers_state_that_is_not_its_own(trained, change):
    with pytest.raises(UserError, match="x.pt: last_optimizer_state is not that of its parameters"):
        check_optimizer("x.pt", restored(trained, change))


def test_state_like_a_template():
    template = {"a": torch.zeros(2, dtype=torch.long), "b": {"c": 1, "d": None}}
    check_like("x.pt", {"a": torch.ones(2, dtype=torch.long), "b": {"c": 5, "d": "anything"}}, template, "state")
    of_a = (torch.zeros(3, dtype=torch.long), torch.zeros(2), [0, 0])
    for keys, odd in (*((("a",), odd) for odd in of_a), (("b",), {"c": 5}), (("b", "c"), "x")):
        with pytest.raises(UserError, match=f"x.pt: {keys[-1]} is not like that of this run; give"):
            check_like("x.pt", with_value(template, keys, odd), template, "state")
