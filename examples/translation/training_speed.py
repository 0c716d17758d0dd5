"""Measure training speed of the feedback decoder next to fairseq's Transformer.

    python examples/translation/training_speed.py [--layers 1 2] [--sentences 128] [--cpu]

Forward pass, loss and backward pass of whole models on random sentences; the default sizes are those of
``iwslt14_de_en/run.sh --small``, and a batch has its 2,000 or so words. The models take turns.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))

import torch
from fairseq.data import Dictionary

from fb_fairseq.hardware import hardware
from fb_fairseq.papers.benchmark.measure import interleaved_medians, table
from fb_fairseq.papers.benchmark.random_models import MODELS, WITHOUT_CPP_LOOP, Kind, dictionary, random_model

ALL_MODELS = {**MODELS, "feedback, shared, reference loop": WITHOUT_CPP_LOOP}


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


def training_step(kind: Kind, layers: int, args: argparse.Namespace, words: Dictionary) -> Callable[[], None]:
    """A forward and backward pass of a model with random parameters.

    Args:
        layers: number of decoder layers.
    """
    normalize = {"encoder_normalize_before": True, "decoder_normalize_before": True}
    model = random_model(kind, layers, args, words, encoder_layers=args.encoder_layers, **normalize).train()
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
    words = dictionary(args.vocabulary)
    rows, results = [], []
    for layers in args.layers:
        times = interleaved_medians(
            [training_step(kind, layers, args, words) for kind in ALL_MODELS.values()], args.device, args.repeats
        )
        speeds: dict[str, float] = {
            name: args.sentences * args.words / seconds for name, seconds in zip(ALL_MODELS, times)
        }
        for name, speed in speeds.items():
            rows.append([layers, name, speed, speed / speeds["vanilla"]])
            results.append({"layers": layers, "model": name, "words_per_second": round(speed, 1)})
    table(["decoder layers", "", "words/s", "relative to the Transformer"], rows)
    print(json.dumps({"results": results, "setting": {**vars(args), "hardware": hardware(args.device)}}))


if __name__ == "__main__":
    main()
