"""Measure decoding speed and state size of the feedback and the vanilla decoder in one run (v3 Figure 4, Table 5).

    python examples/translation/decoding_speed.py [--layers 1 2 6] [--lengths 25 200] [--sentences 16] [--cpu]

With --out, `compare` prints how many times as fast one layer is as six, beside the papers' figures. At their sizes:

    python examples/translation/decoding_speed.py --layers 1 6 --embed-dim 1024 --ffn-dim 4096 --heads 16 \
        --vocabulary 32768 --lengths 25 --out runs/decoding_speed
    fb-fairseq compare runs/decoding_speed

The models have random parameters, and every hypothesis is as long as --lengths says, so that all models do the same
work and only their speed is compared. Beam search is fairseq's own. The state size is the number of bytes of
self-attention keys and values per hypothesis at its end.
"""

import argparse
import json
import os
import sys
import time
from statistics import median_high
from typing import NamedTuple

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))

import torch
from fairseq.data import Dictionary
from fairseq.sequence_generator import SequenceGenerator

from fb_fairseq.command_line import add_overwrite
from fb_fairseq.errors import UserError
from fb_fairseq.folders import check_own_folder, own_folder
from fb_fairseq.hardware import hardware
from fb_fairseq.models.feedback_decoder import FeedbackDecoderModel
from fb_fairseq.papers.benchmark.measure import table
from fb_fairseq.papers.benchmark.random_models import (
    MODELS,
    WITHOUT_CPP_LOOP,
    Kind,
    dictionary,
    random_model,
    state_bytes,
)

NAME = "decoding-speed"  # as the writer of files
SOURCE_WORDS = 25  # length of every source sentence
CPU_MODELS = {**MODELS, "feedback, shared, reference": WITHOUT_CPP_LOOP}
GPU_MODELS = {
    **CPU_MODELS,
    "feedback, shared, triton": Kind(FeedbackDecoderModel, {"memory_projections": "shared", "step_loop": "triton"}),
}


PAPERS = dict(embed_dim=1024, ffn_dim=4096, heads=16)  # v3 Table 8, WMT'14


class Case(NamedTuple):
    """One row of the table."""

    kind: str
    layers: int  # of the decoder
    length: int  # tokens of a hypothesis
    generator: SequenceGenerator
    state_bytes: int  # per hypothesis
    seconds: list[float]  # one per run; the first warms up

    @property
    def name(self) -> str:
        """The row's heading."""
        return f"{self.layers} layers, {self.length} tokens, {self.kind}"


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)

    def add(option: str, help: str, **settings) -> None:
        parser.add_argument(option, help=f"{help} (default: %(default)s)", type=int, **settings)

    add("--layers", "numbers of decoder layers", nargs="+", default=[1, 2, 6])
    add("--embed-dim", "model width", default=512)
    add("--ffn-dim", "feed-forward width", default=1024)
    add("--heads", "attention heads", default=4)
    add("--vocabulary", "size of the joint dictionary", default=10000)
    add("--sentences", "sentences of the batch", default=16)
    add("--lengths", "tokens of a hypothesis", nargs="+", default=[25, 200])
    add("--beam", "beam size", default=5)
    add("--repeats", "number of timed runs, of which the median is reported; the models take turns", default=3)
    add("--threads", "CPU threads", default=1)
    parser.add_argument("--out", metavar="DIR", help="folder to write results.json to, for compare")
    add_overwrite(parser)
    parser.add_argument("--cpu", action="store_true", help="run on the CPU even if there is a GPU")
    args = parser.parse_args()
    args.device = "cuda" if torch.cuda.is_available() and not args.cpu else "cpu"
    if args.out:
        try:
            check_own_folder("--out", args.out, NAME, args.overwrite)
        except UserError as error:
            parser.error(str(error))
    return args


def build_cases(args: argparse.Namespace, words: Dictionary) -> list[Case]:
    """Build all models and their generators, sorted by the length of the hypotheses."""
    cases = []
    for layers in args.layers:
        for name, kind in (GPU_MODELS if args.device == "cuda" else CPU_MODELS).items():
            model = random_model(kind, layers, args, words, encoder_layers=6).eval()
            for length in args.lengths:
                options = dict(beam_size=args.beam, max_len_a=0, max_len_b=length, min_len=length)
                generator = SequenceGenerator([model], words, **options).to(args.device)
                size = state_bytes(model, length, args.device, words)
                cases.append(Case(name, layers, length, generator, size, []))
    return sorted(cases, key=lambda case: case.length)


def time_case(case: Case, sample: dict[str, dict], device: str) -> None:
    """Decode the batch once and note the time.

    Raises:
        AssertionError: a hypothesis does not have the length it should have.
    """
    start = time.perf_counter()
    found = case.generator.generate([], sample)
    if device == "cuda":
        torch.cuda.synchronize()
    case.seconds.append(time.perf_counter() - start)
    assert all(len(sentence[0]["tokens"]) == case.length + 1 for sentence in found)


def results_of_runs(args: argparse.Namespace, speeds: dict[str, float], cases: list[Case]) -> dict[str, dict]:
    """The results as the recipe of WMT'14 writes them, for ``fb-fairseq compare``."""
    small = any(getattr(args, name) != size for name, size in PAPERS.items())
    found = {}
    for case in cases:
        if case.kind not in MODELS:  # the same models, computed in another way
            continue
        model, _, projections = case.kind.partition(", ")
        identity = {"recipe": "wmt14_en_de", "small": small, "layers": case.layers, "data": f"--lengths {case.length}"}
        identity["model"] = "transformer" if model == "vanilla" else model
        if projections:
            identity["projections"] = projections
        measured = {"decoded_tokens_per_second": speeds[case.name], "hardware": hardware(args.device)}
        found[case.name] = {**identity, **measured}
    return found


def main() -> None:
    """Run the command: print a table, and last a JSON line with the setting and the hardware."""
    args = parse()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    words = dictionary(args.vocabulary)
    source = torch.randint(4, len(words), (args.sentences, SOURCE_WORDS), device=args.device)
    lengths = torch.full((args.sentences,), SOURCE_WORDS, device=args.device)
    sample = {"net_input": {"src_tokens": source, "src_lengths": lengths}}
    with torch.no_grad():
        cases = build_cases(args, words)
        for _ in range(args.repeats + 1):
            for case in cases:  # the models take turns, so that a busy moment of the machine affects all of them
                time_case(case, sample, args.device)
    results, rows = {}, []
    for case in cases:
        speed = args.sentences * case.length / median_high(case.seconds[1:])
        results[case.name] = {"words_per_second": round(speed, 1), "state_bytes": case.state_bytes}
        rows.append([case.name, speed, case.state_bytes])
    if args.out:
        runs = results_of_runs(args, {name: found["words_per_second"] for name, found in results.items()}, cases)
        with own_folder("--out", args.out, NAME, args.overwrite) as folder:
            with open(os.path.join(folder, "results.json"), "w", encoding="utf-8") as file:
                json.dump(runs, file, indent=4)
    table(["", "words/s", "bytes of state per hypothesis"], rows)
    setting = {**vars(args), "hardware": hardware(args.device), "torch": torch.__version__}
    print(json.dumps({**results, "setting": setting}))


if __name__ == "__main__":
    main()
