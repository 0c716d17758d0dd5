"""Training: tokens per second, and memory, of forward pass, loss and backward pass on a block with a full memory.

Measures the Feedback Transformer with each step loop that runs on the device, a Transformer of the same size, and the
all-attention network with as many persistent vectors as a feed-forward sublayer has units. Embeddings, output layer and
optimizer, which are the same for all, are left out. On a CPU the models take turns.

--compare spans measures what shorter adaptive spans save: all heads have the same span, S, S/2, S/4, … steps. (In
training, memory is kept 64 steps further than the longest head reaches.) --compare blocks measures blocks of half, one,
two and four times --block steps, with as many tokens, so with fewer and fewer streams (v1 Figure 9).

Memory is the most that tensors occupy at once, gradients included, without parameters and carried memory; the part that
the forward pass keeps for the backward pass; and the carried memory.
"""

import argparse
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from fb_fairseq.modules import StreamState
from fb_fairseq.modules.interface import Stack
from fb_fairseq.papers.benchmark import models
from fb_fairseq.papers.benchmark.comparisons import COMPARISONS
from fb_fairseq.papers.benchmark.memory import peak_bytes, saved_bytes
from fb_fairseq.papers.benchmark.models import Case
from fb_fairseq.papers.benchmark.options import DTYPES, add_model_options, add_number
from fb_fairseq.papers.benchmark.tables import table
from fb_fairseq.papers.benchmark.timing import measure
from fb_fairseq.papers.benchmark.work import Work, repeated


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_model_options(parser)
    add_number(parser, "--block", 64, "number of steps in a training block")
    text = "what to measure side by side (default: %(default)s)"
    parser.add_argument("--compare", choices=COMPARISONS, default="loops", help=text)


def run(args: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Measure all cases. Returns the measurements of each."""
    cases = models.only(COMPARISONS[args.compare](args), args)
    makers = [partial(training_step, case, args) for case in cases.values()]
    results = measure(makers, args.device, args.repeats, partial(measured, args.device))
    found = dict(zip(cases, results))
    base = next(name for name in found if name.startswith("transformer"))
    rows = []
    for name, result in found.items():
        result["relative"] = round(result["tokens_per_second"] / found[base]["tokens_per_second"], 4)
        megabytes = [result[key] / 1e6 for key in ("peak_bytes", "saved_bytes", "carried_bytes")]
        rows.append([name, result["tokens_per_second"], result["relative"], *megabytes])
    head = ["", "tokens/s", f"relative to {base}", "peak MB", "MB kept for backward", "MB carried"]
    table(head, rows)
    return found


def measured(device: str, step: Work, seconds: float) -> dict[str, float]:
    """The speed and memory of a training step, which takes so many seconds."""
    step.model.zero_grad()
    return {
        "tokens_per_second": round(step.words / seconds, 1),
        "peak_bytes": peak_bytes(step.run, device),
        "saved_bytes": saved_bytes(step.forward, step.model),
        "carried_bytes": step.state(),
    }


def step_of(model: torch.nn.Module, forward: Callable[[], Tensor], weights: Tensor, carried: int = 0) -> Work:
    """A training step.

    Args:
        model: its parameters get gradients.
        forward: returns the model's output [T, B, D] or [B, T, D].
        weights: of the output's entries in the loss, of the same shape.
        carried: bytes of the memory that is carried into it.
    """

    def step() -> None:
        (forward() * weights).float().mean().backward()

    return Work(
        prepare=repeated(step, weights.device.type),
        run=step,
        words=weights.shape[0] * weights.shape[1],
        model=model,
        forward=forward,
        state=lambda: carried,
    )


def block_with_full_memory(model: Stack, args: argparse.Namespace) -> tuple[Tensor, StreamState]:
    """A random block [T, B, D], and the state that carries a full memory into it (that of two spans of steps)."""
    x_TBD = torch.randn(args.block, args.batch_size, args.embed_dim, device=args.device, dtype=DTYPES[args.dtype])
    state = None
    with torch.no_grad():
        for _ in range(2 * args.span // args.block + 1):
            state = model.run_block(x_TBD, state)[1]
    return x_TBD, state


def training_step(case: Case, args: argparse.Namespace) -> Work:
    """A training step of a model on a random block, into which a full memory is carried. ``args``: the command's."""
    sized = argparse.Namespace(**{**vars(args), **case.sizes})
    model = models.build_model(case.model, sized, **case.options)
    x_TBD, state = block_with_full_memory(model, sized)

    def forward() -> Tensor:
        return model.run_block(x_TBD, StreamState(state.memory_KCBD))[0]

    return step_of(model, forward, torch.randn_like(x_TBD), state.memory_KCBD.untyped_storage().nbytes())
