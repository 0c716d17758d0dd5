"""Training speed of our models next to two public implementations of the Feedback Transformer.

    pip install feedback-transformer-pytorch      # lucidrains
    pip install --no-deps labml-nn labml pyyaml   # labml; what else labml-nn asks for is not used here
    python examples/benchmark/peers.py --batch-size 32

Takes the options of ``fb-fairseq benchmark train`` and measures the same: tokens per second of forward pass,
loss and backward pass on a block, without embeddings and output layer. The models take turns. All have the same number
and width of layers, heads and feed-forward sublayers, keys and values that the layers share, and no dropout. The
functions below say how the others still differ; where there was a choice, it was made in their favour. A peer that is
not installed is left out. (On a GPU or in half precision, the reference runs in the place of the C++ loop.)
"""

import argparse
import importlib
import importlib.metadata
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))

import torch
import torch.nn as nn

from fb_fairseq.hardware import hardware
from fb_fairseq.papers.benchmark import command, comparisons, train
from fb_fairseq.papers.benchmark.options import DTYPES
from fb_fairseq.papers.benchmark.tables import table
from fb_fairseq.papers.benchmark.timing import measure
from fb_fairseq.papers.benchmark.work import Work

OWN = ("transformer", "cpp", "reference")  # of comparisons.loops


class Peer(NamedTuple):
    """A public implementation."""

    training_step: Callable[[argparse.Namespace], Work]
    module: str
    package: str  # its name on PyPI
    install: str  # the command that installs it


def lucidrains_step(args: argparse.Namespace) -> Work:
    """A training step of ``feedback-transformer-pytorch``, with a full memory of the span carried into the block.

    ``seq_len=1`` makes it the paper's model, whose memory grows by one slot after every step. (With the default of 2,
    the two steps of a segment are computed in parallel and attend to each other within their own layer.) It attends to
    the last ``mem_len`` slots, as ours does. In its favour: with ``seq_len=1`` its position bias is the same for all
    slots, where ours multiplies every query by the positions' vectors.
    """
    from feedback_transformer_pytorch import FeedbackTransformer

    B, T, D = args.batch_size, args.block, args.embed_dim
    head_dim = D // args.heads
    sizes = {"dim": D, "depth": args.layers, "heads": args.heads, "dim_head": head_dim}
    model = FeedbackTransformer(num_tokens=1, mem_len=args.span, seq_len=1, **sizes)
    # Its feed-forward sublayers are gated, with three matrices of width 4 D. Two of the given width are less work.
    for _, sublayer in model.layers:
        sublayer.fn.fn = nn.Sequential(nn.Linear(D, args.ffn_dim), nn.ReLU(), nn.Linear(args.ffn_dim, D))
    # It takes words only: here those of a frozen table with the block's vectors. Of the output layer, the norm stays.
    model.token_emb = nn.Embedding.from_pretrained(torch.randn(B * T, D))
    model.to_logits = model.to_logits[0]
    model.to(args.device, DTYPES[args.dtype])
    words_BT = torch.arange(B * T, device=args.device).view(B, T)
    memory = None
    with torch.no_grad():
        for _ in range(2 * args.span // T + 1):
            memory = model(words_BT, memory, return_memory=True)[1]
    weights_BTD = torch.randn(B, T, D, device=args.device, dtype=DTYPES[args.dtype])
    return train.step_of(model, lambda: model(words_BT, memory), weights_BTD)


def labml_step(args: argparse.Namespace) -> Work:
    """A training step of labml's ``FeedbackTransformerKV``, whose memory is empty at the start of the block.

    It takes no memory, and a step attends to all steps of the block before it. In its favour where the block is not
    longer than twice the span: a step attends to T / 2 slots on average (32 by default), one of ours to S (100). In
    ours: its attention has two more bias terms, which cost little.
    """
    from labml_nn.transformers import feedback

    T, D, H = args.block, args.embed_dim, args.heads
    attention = feedback.FeedbackAttention(H, D, 0.0, is_kv_precomputed=True)
    # Its tables of positions have 4,096 rows, and the backward pass of every step fills a gradient of that size; its
    # keys and values have room for 512 steps. In its favour: here all are made for the steps of the block.
    attention.key_pos_embeddings = nn.Parameter(torch.zeros(T, H, D // H))
    attention.key_pos_bias = nn.Parameter(torch.zeros(T, H))
    feed_forward = feedback.FeedForward(D, args.ffn_dim, 0.0)
    layer = feedback.FeedbackTransformerLayer(d_model=D, attn=attention, feed_forward=feed_forward, dropout_prob=0.0)
    model = feedback.FeedbackTransformerKV(layer, args.layers, D, H).to(args.device, DTYPES[args.dtype])
    model.mem_key, model.mem_value = feedback.Stack(T), feedback.Stack(T)
    x_TBD = torch.randn(T, args.batch_size, D, device=args.device, dtype=DTYPES[args.dtype])
    return train.step_of(model, lambda: model(x_TBD), torch.randn_like(x_TBD))


PEERS = {
    "lucidrains": Peer(
        lucidrains_step,
        "feedback_transformer_pytorch",
        "feedback-transformer-pytorch",
        "pip install feedback-transformer-pytorch",
    ),
    "labml": Peer(labml_step, "labml_nn.transformers", "labml-nn", "pip install --no-deps labml-nn labml pyyaml"),
}


def main() -> None:
    """Run the command: print a table, and last a JSON line with the setting and the hardware."""
    if {"-h", "--help"} & set(sys.argv):
        print(__doc__)
    args = command.parse(["train", *sys.argv[1:]])
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    cases = comparisons.loops(argparse.Namespace(device="cpu", dtype="fp32"))
    steps = {name: partial(train.training_step, cases[name], args) for name in OWN}
    versions: dict[str, str] = {"torch": torch.__version__}
    for name, peer in PEERS.items():
        try:
            versions[peer.package] = importlib.metadata.version(peer.package)
            importlib.import_module(peer.module)
            steps[name] = partial(peer.training_step, args)
        except ImportError as error:
            print(f"{name} is left out ({error}); to install it: {peer.install}")
    found = measure(list(steps.values()), args.device, args.repeats, lambda step, seconds: step.words / seconds)
    speeds = dict(zip(steps, found))
    rows = [[name, speed, speed / speeds["transformer"], speed / speeds["cpp"]] for name, speed in speeds.items()]
    table(["", "tokens/s", "relative to the Transformer", "relative to the C++ loop"], rows)
    result = {
        "tokens_per_second": {name: round(speed, 1) for name, speed in speeds.items()},
        "ratio": {
            f"{name}_vs_transformer": round(speeds[name] / speeds["transformer"], 4)
            for name in speeds
            if name != "transformer"
        },
        "setting": {**vars(args), "command": "peers", "hardware": hardware(args.device), **versions},
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
