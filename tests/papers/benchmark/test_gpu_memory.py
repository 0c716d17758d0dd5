"""examples/benchmark/gpu_memory.py: how many streams fit, by calculation."""

import importlib.util
import sys

import pytest

from tests.conftest import REPOSITORY


def test_what_fits_into_memory(script):
    """Bytes are those that the block's parts take: here of random_walk, where they can be summed by hand."""
    memory = script("gpu_memory")
    recipe = memory.RECIPES[0]
    assert recipe.preset == "random_walk"
    options = memory.options_of(recipe.preset)
    found = memory.count_bytes(options, recipe, memory.torch.float32).per_stream
    T, S, D, L, H, F = recipe.steps, 100, 256, 4, 4, 1024
    slots = 2 * L * (S + T) * D
    least = 4 * (2 * slots + S * D + L * T * (H * S + F + 5 * D)) + L * T * (H * S + F)  # and the masks' bytes
    assert least < found < 2.2 * least


def test_table_of_the_page(script, capsys, monkeypatch):
    pytest.importorskip("triton")
    memory = script("gpu_memory")
    monkeypatch.setattr(memory, "RECIPES", memory.RECIPES[:1])
    monkeypatch.setattr(memory, "MODES", {"fp32": memory.MODES["fp32"]})
    monkeypatch.setattr(sys, "argv", ["gpu_memory.py"])
    memory.main()
    page = (REPOSITORY / "docs/gpu.md").read_text(encoding="utf-8")
    head, _, row = capsys.readouterr().out.splitlines()
    assert f"\n{head}\n" in page and row.rpartition(" MB")[0] in page  # (how many fit may depend on torch's version)


def test_without_triton(script, refused, monkeypatch):
    memory = script("gpu_memory")
    monkeypatch.setattr(sys, "argv", ["gpu_memory.py"])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "Triton is not installed; pip install triton" in refused(memory.main)
