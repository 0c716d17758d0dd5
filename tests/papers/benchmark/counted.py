"""The benchmarks with a counter of operations in place of the clock: what they measure, and the tables that they print.

Everything runs in the reference loop, so that the counts are the same on all machines: those of matrix products, in
forward and backward passes.
"""

import contextlib
import io
import shlex
from collections.abc import Callable
from unittest import mock

from torch.utils.flop_counter import FlopCounterMode

from fb_fairseq.ops.feedback.loops import LOOPS
from fb_fairseq.papers.benchmark import command, decode, table5, tracking, train

SIZES = "--layers 2 --embed-dim 16 --heads 2 --ffn-dim 24 --span 20 --batch-size 4 --device cpu"
CALLS = [
    f"train {SIZES} --block 10",
    f"train {SIZES} --block 10 --compare spans",
    f"train {SIZES} --block 4 --compare blocks",
    f"train {SIZES} --block 30 --dtype bf16 --only reference",
    f"decode {SIZES} --steps 30",
    "tracking --models feedback lstm slstm --longest 4 --tokens 16 --device cpu",
    "table5 --device cpu --small --memory 5e-05 --tasks lm rl",
    "table5 --device cpu --small --memory 5e-05 --tasks translation",
]
TINY = {
    "lm": dict(
        options=dict(
            decoder_layers=3,
            decoder_embed_dim=12,
            decoder_ffn_embed_dim=20,
            decoder_attention_heads=2,
            attention_span=6,
            dropout=0.1,
        ),
        vocabulary=30,
        block=5,
        steps=2,
        batch=3,
    ),
    "translation": dict(
        encoder_layers=2,
        layers=3,
        embed_dim=12,
        ffn_dim=20,
        heads=2,
        vocabulary=30,
        length=7,
        beam=2,
        batch=3,
    ),
    "rl": dict(small=True, options=dict(width=8, span=6, block=4, layers=3), steps=2, batch=3),
}


def operations(function: Callable) -> int:
    """The operations of a call."""
    counter = FlopCounterMode(display=False)
    with counter:
        function()
    return counter.get_total_flops()


def counts(makers, device, repeats, result) -> list:
    """In place of ``timing.measure``: print what each work is; a run takes a second."""
    found = []
    for make in makers:
        work = make()
        prepared = operations(work.prepare)
        done = f"{prepared} operations, then {operations(work.run)}"
        if make.func.__qualname__.startswith("Translation"):  # releases of fairseq differ in those of its attention
            done = f"{prepared / operations(work.run):g} times what is timed"
        print(f"{work.words} words: {done}; {work.state()} bytes")
        found.append(result(work, 1.0))
    return found


def counted_seconds(function, device) -> float:
    """In place of ``timing.seconds``: a second for a million operations."""
    return operations(function) / 1e6


def counted(call: str) -> str:
    """What a call of ``CALLS`` prints."""
    text = io.StringIO()
    with contextlib.ExitStack() as patches:
        for loop in LOOPS.values():
            if loop.name != "reference":
                patches.enter_context(mock.patch.object(loop, "unavailable", lambda device: "left out"))
        for key, sizes in TINY.items():
            patches.enter_context(mock.patch.object(table5.find_task(key), "small", sizes))
        for module in (train, tracking, table5):
            patches.enter_context(mock.patch.object(module, "measure", counts))
        patches.enter_context(mock.patch.object(decode, "seconds", counted_seconds))
        for name in ("peak_bytes", "saved_bytes"):  # which depend on torch's release
            patches.enter_context(mock.patch.object(train, name, lambda *arguments: 0))
        patches.enter_context(mock.patch.object(table5, "work_bytes", lambda make, device: 1000.0 * make().words))
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
            command.main(shlex.split(call))
    *lines, _ = text.getvalue().splitlines()  # without the line of JSON, which says where it was measured
    return "\n".join(lines)
