"""Adaptive spans: what shorter spans save of time and memory.

All heads reach S, S/2, S/4, … steps back (z is set; the ramp is 1 step). Training is forward and backward of a block
with a full memory carried in. (In training, memory is kept 64 steps further than the longest head reaches.)
"""

from fb_fairseq.benchmark.measure import MODELS, alternating_medians, block_and_memory, build, saved_bytes, table
from fb_fairseq.modules import StreamState


def add_arguments(parser) -> None:
    parser.add_argument("--block", type=int, default=64, help="steps of a block")
    parser.add_argument("--repeats", type=int, default=5, help="the median is of so many runs")


def run(args) -> dict:
    spans = [args.span]
    while spans[-1] > 8:
        spans.append(spans[-1] // 2)
    results, rows = {}, []
    for name in MODELS:
        cases = [measured(name, args, span) for span in spans]
        times = alternating_medians([case["step"] for case in cases], args.device, args.repeats)
        for span, case, time in zip(spans, cases, times):
            speed = args.batch_size * args.block / time
            result = {"tokens_per_second": round(speed, 1), "saved_bytes": case["saved"], "state_bytes": case["state"]}
            results[f"{name}, span {span}"] = result
            rows.append([f"{name}, span {span}", speed, case["saved"], case["state"]])
    table(["", "tokens/s", "bytes kept for backward", "bytes carried to the next block"], rows)
    return results


def measured(name: str, args, span: int) -> dict:
    """A training step with this span, and its bytes."""
    model = build(name, args, adaptive_span=True, adaptive_span_ramp=1, adaptive_span_init=(span - 1) / args.span)
    x_TBD, state = block_and_memory(model, args)

    def forward():
        return model.run_block(x_TBD, StreamState(state.memory_KCBD))[0]

    def step():
        forward().float().pow(2).mean().backward()

    return {"step": step, "saved": saved_bytes(forward, model), "state": state.memory_KCBD.untyped_storage().nbytes()}
