"""Compilers and exporters leave the step loops alone."""

import sys

import torch

from fb_fairseq.ops.tracing import outside_compiler


def test_the_compiler_is_not_imported_for_it(monkeypatch):
    """It takes seconds."""
    monkeypatch.setattr(torch.compiler, "disable", lambda function: 1 / 0)
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    assert outside_compiler(lambda x: x + 1)(2) == 3
