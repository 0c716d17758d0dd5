"""Measure training speed of the feedback decoder next to fairseq's Transformer.

    python examples/translation/training_speed.py [--layers 1 2] [--sentences 80] [--cpu]

Forward pass, loss and backward pass of whole models on random sentences; the default sizes are those of
``multi30k.sh --small``, and a batch has its 2,000 or so words. The models take turns.
"""

import argparse
import json
import os
import sys
from typing import Callable, Dict

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))

import torch
from fairseq.data import Dictionary
from fairseq.models.transformer import TransformerModel

from fb_fairseq import patches  # noqa: F401  before fairseq is used
from fb_fairseq.benchmark.measure import interleaved_medians, table
from fb_fairseq.hardware import hardware
from fb_fairseq.models.feedback_decoder import FeedbackDecoderModel

MODELS = {
    "vanilla": (TransformerModel, {}),
    "feedback, shared": (FeedbackDecoderModel, {"memory_projections": "shared"}),
    "feedback, per-layer": (FeedbackDecoderModel, {"memory_projections": "per-layer"}),
    "feedback, shared, fast loop": (FeedbackDecoderModel, {"memory_projections": "shared", "step_loop": "fast"}),
}


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)

    def add(option: str, help: str, **settings) -> None:
        parser.add_argument(option, help=f"{help} (default: %(default)s)", type=int, **settings)

    add("--layers", "numbers of decoder layers", nargs="+", default=[1, 2])
    add("--encoder-layers", "number of encoder layers", default=3)
    add("--embed-dim", "model width", default=128)
    add("--ffn-dim", "feed-forward width", default=256)
    add("--heads", "attention heads", default=4)
    add("--vocabulary", "size of the joint dictionary", default=8000)
    add("--sentences", "sentences of a batch", default=128)
    add("--words", "words of each source and target sentence", default=16)
    add("--repeats", "number of timed runs, of which the median is reported", default=7)
    add("--threads", "CPU threads", default=1)
    parser.add_argument("--cpu", action="store_true", help="run on the CPU even if there is a GPU")
    args = parser.parse_args()
    args.device = "cuda" if torch.cuda.is_available() and not args.cpu else "cpu"
    return args


def training_step(name: str, layers: int, args: argparse.Namespace, words: Dictionary) -> Callable[[], None]:
    """A forward and backward pass of a model with random parameters.

    Args:
        name: a key of ``MODELS``.
        layers: number of decoder layers.
    """
    model_class, options = MODELS[name]
    sizes = argparse.Namespace(
        encoder_layers=args.encoder_layers,
        decoder_layers=layers,
        encoder_embed_dim=args.embed_dim,
        encoder_ffn_embed_dim=args.ffn_dim,
        encoder_attention_heads=args.heads,
        decoder_attention_heads=args.heads,
        encoder_normalize_before=True,
        decoder_normalize_before=True,
        share_all_embeddings=True,
        max_source_positions=1024,
        max_target_positions=1024,
        **options,
    )
    task = argparse.Namespace(source_dictionary=words, target_dictionary=words)
    model = model_class.build_model(sizes, task).to(args.device).train()
    source, target = (torch.randint(4, len(words), (args.sentences, args.words), device=args.device) for _ in range(2))
    lengths = torch.full((args.sentences,), args.words, device=args.device)

    def step() -> None:
        logits, _ = model(source, lengths, target)
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten()).backward()

    return step


def main() -> None:
    """Run the command: print a table, and last a JSON line with the setting and the hardware."""
    args = parse()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    words = Dictionary()
    for word in range(args.vocabulary - 4):  # and four special symbols
        words.add_symbol(f"w{word}")
    rows, results = [], []
    for layers in args.layers:
        times = interleaved_medians(
            [training_step(name, layers, args, words) for name in MODELS], args.device, args.repeats
        )
        speeds: Dict[str, float] = {name: args.sentences * args.words / seconds for name, seconds in zip(MODELS, times)}
        for name, speed in speeds.items():
            rows.append([layers, name, speed, speed / speeds["vanilla"]])
            results.append({"layers": layers, "model": name, "words_per_second": round(speed, 1)})
    table(["decoder layers", "", "words/s", "relative to the Transformer"], rows)
    print(json.dumps({"results": results, "setting": {**vars(args), "hardware": hardware(args.device)}}))


if __name__ == "__main__":
    main()
