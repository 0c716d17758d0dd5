"""The cases that ``benchmark train`` measures side by side."""

import argparse

import torch

from fb_fairseq.errors import UserError
from fb_fairseq.ops.feedback.loops import LOOPS
from fb_fairseq.papers.benchmark import models
from fb_fairseq.papers.benchmark.models import Case

OTHER_MODELS = {
    "transformer": Case("transformer"),
    "transformer, recomputing": Case("transformer", {"checkpoint_activations": True}),
    "all-attention": Case("all-attention"),
}
SHORT_SPAN = 8  # spans of this length or less are not halved


def loops(args: argparse.Namespace) -> dict[str, Case]:
    """The step loops that run on the device and in the type, the plain one first, and other models. A loop that does
    not run as CUDA graphs is also measured with its activations recomputed.
    """
    cases = {}
    for loop in LOOPS.values():
        has_type = args.dtype == "fp32" or loop.name != "cpp"  # which computes in fp32 only
        if not has_type or loop.unavailable(torch.device(args.device)) is not None:
            continue
        cases[loop.name] = Case("feedback", {"step_loop": loop.name})
        if not loop.as_graphs:
            options = {"step_loop": loop.name, "checkpoint_activations": True}
            cases[f"{loop.name}, recomputing"] = Case("feedback", options)
    return {**cases, **OTHER_MODELS}


def spans(args: argparse.Namespace) -> dict[str, Case]:
    """Each model with each span. All heads have the same: the ramp adds one step to z."""
    cases = {}
    for name in models.MODELS:
        span = args.span
        while span:
            options = {"adaptive_span": True, "adaptive_span_ramp": 1, "adaptive_span_init": (span - 1) / args.span}
            cases[f"{name}, span {span}"] = Case(name, options)
            span = span // 2 if span > SHORT_SPAN else 0
    return cases


def blocks(args: argparse.Namespace) -> dict[str, Case]:
    """Feedback Transformers with shared and per-layer projections, and a Transformer, with each length of blocks. All
    blocks have as many tokens.
    """
    if args.batch_size % 4 or args.block % 2:
        raise UserError(
            f"--batch-size {args.batch_size} --block {args.block}: give a multiple of 4, and an even number"
        )
    cases = {}
    for block in (args.block // 2, args.block, 2 * args.block, 4 * args.block):
        sizes = {"block": block, "batch_size": args.batch_size * args.block // block}
        streams = sizes["batch_size"]
        name = f"{block} steps of {streams} stream{'s' * (streams != 1)}"
        for projections in ("shared", "per-layer"):
            cases[f"feedback, {projections}, {name}"] = Case("feedback", {"memory_projections": projections}, sizes)
        cases[f"transformer, {name}"] = Case("transformer", {}, sizes)
    return cases


COMPARISONS = {"loops": loops, "spans": spans, "blocks": blocks}  # by the value of --compare
