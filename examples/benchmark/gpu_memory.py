"""How many streams fit into a GPU's memory, by calculation: no GPU is needed.

    python examples/benchmark/gpu_memory.py [--gigabytes 80]

Allocates all that the step loop keeps for a training block (weights, carried memory, slots, activations, dropout masks,
gradients) as tensors without contents (torch's FakeTensorMode), and counts the bytes. What an operation needs for a
moment, embeddings, output layer and optimizer are left out: a tenth of the memory is kept for them. Prints a table in
Markdown; docs/gpu.md shows one.
"""

import argparse
import importlib.util
import os
import sys
from typing import NamedTuple

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from fb_fairseq.modules import FeedbackTransformer, TransformerOptions
from fb_fairseq.ops.feedback.block import Block
from fb_fairseq.ops.feedback.gradients import BlockGradients
from fb_fairseq.ops.feedback.tile import Workspace, tile_steps
from fb_fairseq.ops.feedback.types import BlockInputs

# A captured block keeps its memory, beside that of a block that runs operation by operation: an epoch's first ones.
BLOCKS_WITH_GRAPHS = 2
COUNTED = 32, 64  # numbers of streams for which bytes are counted
KEPT_FREE = 0.1  # share of the memory for everything else


class Recipe(NamedTuple):
    """A recipe's setting: the name of the architecture's preset, steps of a block, and streams."""

    preset: str
    steps: int
    streams: int


RECIPES = [
    Recipe("random_walk", 64, 512),
    Recipe("char_ptb", 128, 2048),
    Recipe("wikitext103_small", 256, 512),
    Recipe("wikitext103_large", 256, 512),
]
MODES = {  # compute type, recomputation
    "fp32": (torch.float32, False),
    "bf16": (torch.bfloat16, False),
    "bf16, recomputing": (torch.bfloat16, True),
}


class Allocated(TorchDispatchMode):
    """Counts the bytes of all tensors that are made, and remembers them, so that none takes another's place.

    Attributes:
        bytes: the sum so far.
    """

    def __init__(self):
        super().__init__()
        self.bytes = 0
        self._storages: dict[int, object] = {}

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        """Run an operation, and count what it allocates."""
        result = operation(*args, **(kwargs or {}))
        for x in pytree.tree_flatten(result)[0]:
            if torch.is_tensor(x) and x.untyped_storage()._cdata not in self._storages:
                self._storages[x.untyped_storage()._cdata] = x
                self.bytes += x.untyped_storage().nbytes()
        return result


def block_bytes(options: TransformerOptions, steps: int, streams: int, dtype: torch.dtype, triton: bool = False) -> int:
    """Bytes of a training block, carried memory included.

    Args:
        options: of the layers.
        steps: of the block.
        streams: their number.
        dtype: in which it computes.
        triton: of the Triton loop (which needs Triton), instead of the reference.
    """
    S, D = options.attention_span, options.decoder_embed_dim
    with FakeTensorMode(allow_non_fake_inputs=False), torch.device("cuda"), torch.no_grad():
        model = FeedbackTransformer(options)
        weights = model.loop_weights(torch.device("cuda"), [S] * len(model.layers))
        dropped = [x for x in model.draw_dropouts(torch.empty(1, 1, D), S) if x is not None]
        with Allocated() as allocated:
            x_TBD = torch.empty(steps, streams, D)
            torch.empty(3, steps, streams, D)  # the output, its gradient and that of the input
            memory_KCBD = torch.empty(model.memory.memories, S, streams, D)
            inputs = BlockInputs(x_TBD, memory_KCBD, weights, model.loop_options(S), dtype=dtype)
            block = Block(inputs, records_weights=not triton)
            tile = tile_steps(block.sizes, x_TBD.device)
            block.record(tile if options.checkpoint_activations else steps)
            BlockGradients(block)
            Workspace(block, tile)
            if triton:
                from fb_fairseq.ops.feedback.triton.forward import BlockKernels

                BlockKernels(block)
    return allocated.bytes + steps * streams * sum(mask.keep.numel() for mask in dropped)


class Bytes(NamedTuple):
    """Of a training block: the part that does not depend on the number of streams, and that of each stream."""

    fixed: float
    per_stream: float


def count_bytes(options: TransformerOptions, recipe: Recipe, dtype: torch.dtype, triton: bool = False) -> Bytes:
    """What a recipe's block needs; see ``block_bytes``."""
    few, more = (block_bytes(options, recipe.steps, streams, dtype, triton) for streams in COUNTED)
    per_stream = (more - few) / (COUNTED[1] - COUNTED[0])
    return Bytes(few - COUNTED[0] * per_stream, per_stream)


def options_of(preset: str, **changes) -> TransformerOptions:
    """The layers of a preset, with a projection per layer as in the recipes."""
    from fb_fairseq.models.architectures import TRANSFORMERS

    known = TransformerOptions.__dataclass_fields__
    values = {name: value for name, value in TRANSFORMERS[preset].items() if name in known}
    return TransformerOptions(**{**values, "memory_projections": "per-layer", **changes})


def rows(gigabytes: float) -> list[list[str]]:
    """The table's rows, for a GPU with so much memory."""
    found = []
    for recipe in RECIPES:
        for mode, (dtype, recompute) in MODES.items():
            options = options_of(recipe.preset, checkpoint_activations=recompute)
            reference = count_bytes(options, recipe, dtype)
            triton = count_bytes(options, recipe, dtype, triton=True)
            free = (1 - KEPT_FREE) * gigabytes * 1e9
            fitting = [
                int((free - blocks * reference.fixed) / (blocks * reference.per_stream))
                for blocks in (1, BLOCKS_WITH_GRAPHS)
            ]
            streams = recipe.streams
            while streams > max(fitting[1], 1):
                streams //= 2
            setting = f"`--batch-size {streams} --update-freq {recipe.streams // streams}`"
            shown = [f"{counted.per_stream / 1e6:.0f} MB" for counted in (reference, triton)]
            found.append([f"`{recipe.preset}`", mode, *shown, *map(str, fitting), setting])
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=80, metavar="N", help="the GPU's memory (default: 80)")
    args = parser.parse_args()
    if importlib.util.find_spec("triton") is None:
        parser.error("Triton is not installed; pip install triton, which needs no GPU")
    fit = f"streams in {args.gigabytes:g} GB"
    head = [
        "architecture",
        "type",
        "per stream, `reference`",
        "`triton`",
        f"{fit}, `reference`",
        "`triton`, `auto`",
        "the papers' number of streams",
    ]
    print("| " + " | ".join(head) + " |\n|---|---|---:|---:|---:|---:|---|")
    for row in rows(args.gigabytes):
        print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
