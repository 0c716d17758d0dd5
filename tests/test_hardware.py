"""How the machine is named in results."""

import io
import platform

import pytest
import torch

from fb_fairseq.hardware import hardware, training_hardware


def test_hardware(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert training_hardware().endswith(", 2 threads") and len(training_hardware()) > len(", 2 threads")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H100")
    for count, words in ((1, "NVIDIA H100"), (8, "8 x NVIDIA H100")):
        monkeypatch.setattr(torch.cuda, "device_count", lambda count=count: count)
        assert training_hardware() == words


@pytest.mark.parametrize("processor,name", [("a CPU", "a CPU"), ("", "riscv64")])
def test_where_no_list_of_cpus_names_a_model(processor, name, monkeypatch):
    monkeypatch.setattr("fb_fairseq.hardware.open", lambda path: io.StringIO("processor: 0"), raising=False)
    monkeypatch.setattr(platform, "processor", lambda: processor)
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert hardware("cpu") == name
