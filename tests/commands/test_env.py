"""The command ``env`` says what runs here, with and without a compiler."""

import functools
import sys
from unittest import mock

import pytest
import torch

import fb_fairseq
from fb_fairseq.commands import env, main
from fb_fairseq.ops.feedback.cpp import library
from tests.conftest import REPOSITORY


def lines(capsys):
    assert main(["env"]) is None
    return dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())


def test_versions_and_devices(capsys):
    found = {name: value.strip() for name, value in lines(capsys).items()}
    assert found["torch"] == torch.__version__
    assert found["Python"].startswith(sys.version.split()[0])
    assert found["fb_fairseq"] == f"{fb_fairseq.__version__} (--user-dir {REPOSITORY / 'fb_fairseq'})"
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    assert found["GPU"] == (", ".join(gpus) if gpus else "none that torch can use")
    assert "torch uses" in found["processor"] and env.version_of("there is no such package") == "not installed"


def test_without_a_compiler(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(library, "load", functools.lru_cache(library.load.__wrapped__))
    monkeypatch.setattr("fb_fairseq.ops.feedback.cpp.loop.load", library.load)
    assert "reference on cpu (the C++ loop is not available: no C++ compiler" in lines(capsys)["step loop"]


def test_without_a_home(capsys, monkeypatch):
    """As for a user of a container that no list of users has."""
    for name in ("FB_FAIRSEQ_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pathlib.Path.home", mock.Mock(side_effect=RuntimeError("no home directory")))
    assert "nowhere (no home directory); name a folder with FB_FAIRSEQ_CACHE" in lines(capsys)["compiled files"]


@pytest.mark.parametrize(
    "given,told",
    [
        ("reference", "reference on cpu; as FB_FAIRSEQ_STEP_LOOP says"),
        ("graph", "reference on cpu (it does not run on cpu); as FB_FAIRSEQ_STEP_LOOP says"),
        ("auto", "reference on cpu (it does not run on cpu); otherwise reference"),
        ("fast-one", "FB_FAIRSEQ_STEP_LOOP=fast-one: unknown; give auto, reference, cpp, triton"),
    ],
)
def test_a_fixed_step_loop(capsys, monkeypatch, given, told):
    """By its name of today or a former one."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setitem(env.PREFERRED, "cpu", "triton")
    monkeypatch.setenv("FB_FAIRSEQ_STEP_LOOP", given)
    assert lines(capsys)["step loop"].strip() == told
