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

from fb_fairseq.command_line import whole_number
from fb_fairseq.hardware import hardware
from fb_fairseq.papers.benchmark.options import add_number
from fb_fairseq.papers.benchmark.random_models import MODELS, WITHOUT_CPP_LOOP, Kind, dictionary, random_model
from fb_fairseq.papers.benchmark.tables import table
from fb_fairseq.papers.benchmark.tasks import SHARED, TRANSFORMER
from fb_fairseq.papers.benchmark.timing import interleaved_medians

ALL_MODELS = {**MODELS, f"{SHARED}, reference loop": WITHOUT_CPP_LOOP}


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)

    text = "numbers of decoder layers (default: 1 2)"
    parser.add_argument("--layers", type=whole_number, nargs="+", default=[1, 2], metavar="N", help=text)
    add_number(parser, "--encoder-layers", 3, "number of encoder layers")
    add_number(parser, "--embed-dim", 128, "model width")
    add_number(parser, "--ffn-dim", 256, "feed-forward width")
    add_number(parser, "--heads", 4, "attention heads")
    add_number(parser, "--vocabulary", 8000, "size of the joint dictionary")
    add_number(parser, "--sentences", 128, "sentences of a batch")
    add_number(parser, "--words", 16, "words of each source and target sentence")
    add_number(parser, "--repeats", 7, "number of timed runs, of which the median is reported")
    add_number(parser, "--threads", 1, "CPU threads")
    parser.add_argument("--cpu", action="store_true", help="run on the CPU even if there is a GPU")
    args = parser.parse_args()
    args.device = "cuda" if torch.cuda.is_available() and not args.cpu else "cpu"
    return args


def training_step(kind: Kind, layers: int, args: argparse.Namespace, words: Dictionary) -> Callable[[], None]:
    """A forward and backward pass of a model with random parameters.

    Args:
        kind: the model.
        layers: number of decoder layers.
        args: its sizes, those of the batch, and the device.
        words: the dictionary of both languages.
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
            rows.append([layers, name, speed, speed / speeds[TRANSFORMER]])
            results.append({"layers": layers, "model": name, "words_per_second": round(speed, 1)})
    table(["decoder layers", "", "words/s", "relative to the Transformer"], rows)
    print(json.dumps({"results": results, "setting": {**vars(args), "hardware": hardware(args.device)}}))


if __name__ == "__main__":
    main()
