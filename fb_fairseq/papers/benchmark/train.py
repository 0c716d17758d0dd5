"""Training: tokens per second of forward pass, loss and backward pass on a block with a full memory.

Measures the Feedback Transformer with each step loop that runs on the device, a Transformer of the same size, and the
all-attention network with as many persistent vectors as a feed-forward sublayer has units. Where fairseq is installed,
its own transformer_lm, which carries no memory, is measured too, and so is our Transformer without memory. Embeddings,
output layer and optimizer, which are the same for all, are left out. The models take turns. Before that, the gradients
of all step loops are checked against those of the reference loop.
"""

import argparse
import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fb_fairseq.modules import StreamState
from fb_fairseq.ops.feedback import loops
from fb_fairseq.ops.feedback.loops import AUTO, LOOPS, PARALLEL, REFERENCE
from fb_fairseq.papers.benchmark import models
from fb_fairseq.papers.benchmark.measure import copy_bandwidth, count_launches, interleaved_medians, table
from fb_fairseq.papers.benchmark.models import DTYPES, STOCK_NAME, Case

OTHER_MODELS = {"transformer": Case("transformer", {}), "all-attention": Case("all-attention", {})}
# Passes over all steps of a block at once: fixed, and until they converge.
PASSES = {"parallel": {"parallel_passes": 6}, "parallel, converged": {"parallel_passes": 0}}
WITHOUT_MEMORY = "transformer, no memory"
FP32_TOLERANCE = 1e-3  # norm of the difference of two gradients, relative to the gradient
HALF_TOLERANCE = 0.1


@dataclasses.dataclass
class TrainingStep:
    """A forward and backward pass."""

    model: torch.nn.Module  # whose parameters get gradients
    forward: Callable[[], Tensor]  # returns the model's output [T, B, D] or [B, T, D]
    weights: Tensor  # of the output's entries in the loss

    def __call__(self) -> None:
        (self.forward() * self.weights).float().mean().backward()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    models.add_block(parser)
    models.add_repeats(parser)
    models.add_only(parser)


def warm_up(step: TrainingStep, device: str, case: Case | None = None) -> None:
    """On a GPU, repeat a step until the graphs of the case's step loop are captured (without a case: of any), and
    libraries have allocated what they keep."""
    loop = case.options.get("step_loop", AUTO) if case else AUTO
    for _ in range(loops.warm_up_blocks(loop) + 1 if device.startswith("cuda") else 0):
        step()


def cases_on(device: str) -> dict[str, Case]:
    """What is measured on a device: the step loops that run on it, the plain one first, and other models. A loop
    without a warm-up is also measured recomputing its activations."""
    cases = {REFERENCE: Case("feedback", {"step_loop": REFERENCE})}
    for loop in LOOPS.values():
        if device.partition(":")[0] not in loop.devices:
            continue
        cases[loop.name] = Case("feedback", {"step_loop": loop.name})
        if not loop.as_graphs:
            options = {"step_loop": loop.name, "step_loop_recompute": True}
            cases[f"{loop.name}, recomputing"] = Case("feedback", options)
    parallel = {name: Case("feedback", {"step_loop": PARALLEL, **options}) for name, options in PASSES.items()}
    return {**cases, **parallel, **OTHER_MODELS}


def run(args: argparse.Namespace) -> dict:
    """Check the step loops' gradients, then measure all cases."""
    cases = models.only(cases_on(args.device), args)
    if REFERENCE in cases:
        options = [case.options for case in cases.values() if case.model == "feedback"]
        check_gradients(args, [given for given in options if not given.get("parallel_passes")])
    else:
        print("Gradients are not checked: the reference loop is not among --only.")
    steps = {name: training_step(case, args) for name, case in cases.items()}
    stock = models.stock_decoder(args, args.block)
    if stock is not None:
        steps[WITHOUT_MEMORY] = training_step(cases["transformer"], args, full_memory=False)
        steps[STOCK_NAME] = stock_training_step(stock, args)
    for name, step in steps.items():
        warm_up(step, args.device, cases.get(name))
    times = interleaved_medians(list(steps.values()), args.device, args.repeats)
    speeds = {name: args.batch_size * args.block / time for name, time in zip(steps, times)}
    rows = [[name, speed, speed / speeds["transformer"]] for name, speed in speeds.items()]
    head = ["", "tokens/s", "relative to the Transformer"]
    if REFERENCE in speeds:
        rows, head = [[*row, row[1] / speeds[REFERENCE]] for row in rows], [*head, "relative to the reference loop"]
    table(head, rows)
    passes = {name: int(steps[name].model.convergence.last["parallel_passes"]) for name in PASSES if name in steps}
    if passes:
        table(["", "passes"], [list(item) for item in passes.items()])
    result = {
        "passes": passes,
        "tokens_per_second": {name: round(speed, 1) for name, speed in speeds.items()},
        "ratio": speed_ratios(speeds),
        "bandwidth": bandwidth(args, {name: speeds[name] for name, case in cases.items() if case.model == "feedback"}),
    }
    if args.device.startswith("cuda"):
        launches = {name: round(count_launches(step) / args.block, 1) for name, step in steps.items()}
        result["launches_per_step"] = launches
        table(["", "kernel launches per step"], [list(item) for item in launches.items()])
    return result


def speed_ratios(speeds: dict[str, float]) -> dict[str, float]:
    """Speeds relative to each other, under the names that they have in the JSON."""
    own = [name for name in speeds if name not in ("transformer", WITHOUT_MEMORY, STOCK_NAME)]
    ratios = {f"{name}_vs_transformer": speeds[name] / speeds["transformer"] for name in own}
    if STOCK_NAME in speeds:
        ratios["transformer_vs_stock"] = speeds[WITHOUT_MEMORY] / speeds[STOCK_NAME]
    return {name.replace(", ", "_"): round(ratio, 4) for name, ratio in ratios.items()}


def bandwidth(args: argparse.Namespace, speeds: dict[str, float]) -> dict:
    """The share of the device's memory bandwidth that step loops use at these speeds, in tokens per second. If its
    caches kept nothing, the forward and the backward pass would each have to read, at every step, the weights of all
    layers, and S keys and values per layer and stream."""
    D, L = args.embed_dim, args.layers
    layer_weights = 2 * D * D + 2 * D * args.ffn_dim  # query and output projection, and the feed-forward sublayer
    weights = L * layer_weights + 2 * D * D  # and the shared key and value projections
    slots = L * 2 * args.span * D * args.batch_size
    size = torch.empty(0, dtype=DTYPES[args.dtype]).element_size()
    moved, speed = 2 * (weights + slots) * size, copy_bandwidth(args.device)
    shares = {name: tokens / args.batch_size * moved / speed for name, tokens in speeds.items()}
    print(f"\nWithout caches, a step of all streams moves {moved / 1e6:.1f} MB; copies run at {speed / 1e9:.1f} GB/s.")
    table(["", "share of that bandwidth"], [list(item) for item in shares.items()])
    return {
        "bytes_per_step": moved,
        "copy_gigabytes_per_second": round(speed / 1e9, 2),
        "share": {name: round(share, 4) for name, share in shares.items()},
    }


def training_step(case: Case, args: argparse.Namespace, full_memory: bool = True) -> TrainingStep:
    """A training step of one of our models, on a random block into which a full memory is carried, or an empty one."""
    model = models.build_model(case.model, args, **case.options)
    x_TBD, state = models.block_with_full_memory(model, args)

    def forward():
        return model.run_block(x_TBD, StreamState(state.memory_KCBD) if full_memory else None)[0]

    return TrainingStep(model, forward, torch.randn_like(x_TBD))


def stock_training_step(decoder: torch.nn.Module, args: argparse.Namespace) -> TrainingStep:
    """A training step of fairseq's ``transformer_lm``, on random tokens."""
    tokens_BT = models.random_tokens(args, args.block)
    weights_BTD = torch.randn(*tokens_BT.shape, args.embed_dim, device=args.device)
    return TrainingStep(decoder, lambda: decoder.extract_features(tokens_BT, None)[0], weights_BTD)


def check_gradients(args: argparse.Namespace, step_loops: list[dict[str, Any]]) -> None:
    """Compare the gradients of the parameters after a block with a full memory. ``step_loops`` are options of the step
    loops, those of the reference loop first."""
    model = models.build_model("feedback", args)
    x_TBD, state = models.block_with_full_memory(model, args)
    weights_TBD = torch.randn_like(x_TBD)  # (the sum of squares is no loss: it is constant after a layer norm)
    tolerance = FP32_TOLERANCE if args.dtype == "fp32" else HALF_TOLERANCE
    expected: Tensor | None = None
    for options in step_loops:
        model.options = dataclasses.replace(model.options, **{"step_loop_recompute": False, **options})
        # The gradients of the last run are compared, which is that of the captured graph if there is one.
        for _ in range(loops.warm_up_blocks(options["step_loop"]) + 1):
            model.zero_grad()
            (model.run_block(x_TBD, StreamState(state.memory_KCBD))[0] * weights_TBD).float().sum().backward()
        gradients = torch.cat([parameter.grad.float().flatten() for parameter in model.parameters()])
        expected = gradients if expected is None else expected
        difference = float((gradients - expected).norm() / expected.norm())
        if not difference < tolerance:
            raise RuntimeError(f"the gradients of {options} differ from the reference loop's by {difference:.1%}")
