"""examples/benchmark/gpu_memory.py: how many streams fit, by calculation."""

import sys


def test_what_fits_into_memory(script, capsys, monkeypatch):
    """Bytes are those that the block's parts take: here of random_walk, where they can be summed by hand."""
    memory = script("gpu_memory")
    recipe = memory.RECIPES[0]
    assert recipe.preset == "random_walk"
    options = memory.options_of(recipe.preset)
    found = memory.peak_bytes(options, recipe, memory.torch.float32)["stream"]
    T, S, D, L, H, F = recipe.steps, 100, 256, 4, 4, 1024
    slots = 2 * L * (S + T) * D
    least = 4 * (2 * slots + S * D + L * T * (H * S + F + 5 * D)) + L * T * (H * S + F)  # and the masks' bytes
    assert least < found < 2.2 * least
    monkeypatch.setattr(memory, "RECIPES", [recipe])
    monkeypatch.setattr(memory, "MODES", {"fp32": memory.MODES["fp32"]})
    monkeypatch.setattr(sys, "argv", ["gpu_memory.py", "--gigabytes", "2"])
    memory.main()
    assert "| `random_walk` | fp32 | " in capsys.readouterr().out
