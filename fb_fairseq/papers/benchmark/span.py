"""Adaptive spans: how much time and memory shorter spans save.

All heads have the same span: S, S/2, S/4, … steps (z is set, with a ramp of 1 step). A training step is a forward and
backward pass on a block, with a full memory carried into it. (In training, memory is kept 64 steps further than the
longest head reaches.)
"""

import argparse
from collections.abc import Callable

from fb_fairseq.modules import StreamState
from fb_fairseq.papers.benchmark.measure import interleaved_medians, saved_bytes, table
from fb_fairseq.papers.benchmark.models import MODELS, add_block, add_repeats, block_with_full_memory, build_model

SHORT_SPAN = 8  # spans of this length or less are not halved


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_block(parser)
    add_repeats(parser)


def run(args: argparse.Namespace) -> dict:
    """Measure each model with each span."""
    spans = [args.span]
    while spans[-1] > SHORT_SPAN:
        spans.append(spans[-1] // 2)
    results, rows = {}, []
    for name in MODELS:
        steps, saved, carried = zip(*(span_case(name, args, span) for span in spans))
        times = interleaved_medians(steps, args.device, args.repeats)
        for span, time, kept, state in zip(spans, times, saved, carried):
            speed = args.batch_size * args.block / time
            measured = dict(tokens_per_second=round(speed, 1), saved_bytes=kept, state_bytes=state)
            results[f"{name}, span {span}"] = measured
            rows.append([f"{name}, span {span}", speed, kept, state])
    table(["", "tokens/s", "bytes saved for backward", "bytes carried to the next block"], rows)
    return results


def span_case(name: str, args: argparse.Namespace, span: int) -> tuple[Callable[[], None], int, int]:
    """A training step of a model whose heads all have this span, and the bytes that it saves and carries."""
    z = (span - 1) / args.span  # the ramp adds one step
    model = build_model(name, args, adaptive_span=True, adaptive_span_ramp=1, adaptive_span_init=z)
    x_TBD, state = block_with_full_memory(model, args)

    def forward():
        return model.run_block(x_TBD, StreamState(state.memory_KCBD))[0]

    def step():
        forward().float().pow(2).mean().backward()

    return step, saved_bytes(forward, model), state.memory_KCBD.untyped_storage().nbytes()
