"""Blocks with NaN or infinity in one place: what the reference loop's results show of it, every loop shows."""

import torch

from fb_fairseq.ops.feedback.reference import feedback_block
from tests.ops.feedback.cases import Case

VALUES = [float("nan"), float("inf"), -float("inf")]


def spoil(case: Case, seed: int) -> str:
    """Put NaN or infinity into one entry, or all, of a weight, the input, or the memory. Returns where and what."""
    draw = torch.Generator().manual_seed(seed)
    tensors = {**case.learned, **({"memory": case.memory} if case.memory.numel() else {})}
    name = list(tensors)[torch.randint(len(tensors), (), generator=draw)]
    value = VALUES[torch.randint(3, (), generator=draw)]
    with torch.no_grad():
        entries = tensors[name].view(-1) if tensors[name].is_contiguous() else tensors[name].flatten()[:0]
        if not len(entries) or torch.rand((), generator=draw) < 0.2:
            tensors[name].fill_(value)
        else:
            entries[torch.randint(len(entries), (), generator=draw)] = value
    return f"{value} in {name}"


def kinds(x: torch.Tensor) -> torch.Tensor:
    """0 for a number, 1 and -1 for infinities, 2 for what is not a number."""
    return torch.where(x.isnan(), 2, x.isinf() * x.sign()).int()


def check(case: Case, loop, seed: int, recompute: bool = False) -> None:
    """Outputs show the same; gradients show at least what the reference's show. (Where these are sums over what some
    loop multiplies by zero, it may show more.)"""
    where = spoil(case, seed)
    expected = case.run(feedback_block)
    ours = case.run(loop, recompute)
    for name in ("output", "memory"):
        assert kinds(ours[name]).equal(kinds(expected[name])), (where, name)
    for name, gradient in expected.items():
        if gradient is not None:
            found = torch.zeros_like(gradient) if ours[name] is None else ours[name]
            assert not (found.isfinite() & ~gradient.isfinite()).any(), (where, name)
