"""What ``torch.compile`` must leave alone."""

import sys

import torch

from fb_fairseq.ops.threads import outside_compiler


def test_the_compiler_is_not_imported_for_it(monkeypatch):
    """It takes seconds."""
    monkeypatch.setattr(torch.compiler, "disable", lambda function: 1 / 0)
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    assert outside_compiler(lambda x: x + 1)(2) == 3


def test_runs_as_it_is_in_a_compiled_function():
    seen = []

    @outside_compiler
    def inside(x):
        seen.append(torch.compiler.is_compiling())
        return x + 1

    compiled = torch.compile(lambda x: inside(2 * x) * 3, backend="eager")
    for _ in range(2):
        assert compiled(torch.ones(2)).equal(torch.full((2,), 9.0))
    assert seen == [False, False]
