"""The table of results, beside the papers' figures."""

from typing import NamedTuple

from fb_fairseq.papers.benchmark.measure import table
from fb_fairseq.papers.table5.settings import PAPERS, PER_LAYER, SHARED, TRANSFORMER


class Measured(NamedTuple):
    """Training or inference of one model."""

    key: str  # the task, as in ``--tasks``
    task: str  # its name
    phase: str
    kind: str
    batch: int  # the same for all models
    speed: float  # words or frames per second with that batch
    largest_batch: int  # the largest that fits into memory
    speed_at_largest: float  # words or frames per second with the largest batch
    state_bytes: int  # what inference keeps of the past of one stream


def paper(measured: Measured) -> float | None:
    """The papers' speed; None where they report none, and for per-layer projections."""
    figures = dict(zip((TRANSFORMER, SHARED), PAPERS.get((measured.key, measured.phase), ())))
    return figures.get(measured.kind)


def print_report(found: list[Measured], memory: float) -> None:
    """Print the table, and a line about shared projections for each task that has both kinds."""
    models = {(m.key, m.phase, m.kind): m for m in found}
    rows = []
    for m in found:
        base = models[m.key, m.phase, TRANSFORMER]
        figure = paper(m)
        papers = ["", ""] if figure is None else [figure, figure / paper(base)]
        equal_batch = [str(m.batch), m.speed, m.speed / base.speed]
        equal_memory = [str(m.largest_batch), m.speed_at_largest, m.speed_at_largest / base.speed_at_largest]
        rows.append([f"{m.task}, {m.phase}: {m.kind}", *equal_batch, *equal_memory, *papers])
    ratio = "ratio"
    table(["words/s (rl: frames/s)", "batch", "speed", ratio, f"{memory:g} GB", "speed", ratio, "papers", ratio], rows)
    print("\nratio: relative to the Transformer. papers: v3 Table 5, with their batches on their GPUs.")
    for line in sharing(models):
        print(line)


def sharing(models: dict[tuple, Measured]) -> list[str]:
    """What shared projections do for inference."""
    lines = []
    for key in dict.fromkeys(key for key, _, _ in models):
        shared, per_layer = (models.get((key, "inference", kind)) for kind in (SHARED, PER_LAYER))
        if shared is None or per_layer is None:
            continue
        papers = " (papers: almost 3)" if key == "lm" else ""
        lines.append(
            f"Shared projections, {shared.task}: inference {shared.speed / per_layer.speed:.2f} times as fast at equal "
            f"batch, {shared.speed_at_largest / per_layer.speed_at_largest:.2f} times at equal memory{papers}; "
            f"{shared.state_bytes / 1e3:,.1f} KB of state per stream instead of {per_layer.state_bytes / 1e3:,.1f}."
        )
    return lines


def as_json(found: list[Measured]) -> list[dict]:
    """The results for JSON, each with the papers' speed."""
    speeds = ("speed", "speed_at_largest")
    return [{**m._asdict(), **{name: round(getattr(m, name), 1) for name in speeds}, "papers": paper(m)} for m in found]
