"""Measure decoding speed and state size of the feedback and the Transformer decoder in one run (v3 Figure 4, Table 5).

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
from functools import partial
from typing import NamedTuple

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))

import torch
from fairseq.data import Dictionary
from fairseq.sequence_generator import SequenceGenerator

from fb_fairseq.command_line import add_overwrite, whole_number
from fb_fairseq.errors import UserError
from fb_fairseq.folders import check_own_folder, own_folder
from fb_fairseq.hardware import hardware
from fb_fairseq.models.feedback_decoder import FeedbackDecoderModel
from fb_fairseq.papers.benchmark.options import add_number
from fb_fairseq.papers.benchmark.random_models import (
    MODELS,
    WITHOUT_CPP_LOOP,
    Kind,
    dictionary,
    random_model,
    state_bytes,
)
from fb_fairseq.papers.benchmark.tables import table
from fb_fairseq.papers.benchmark.tasks import SHARED
from fb_fairseq.papers.benchmark.timing import interleaved_medians

NAME = "decoding-speed"  # as the writer of files
SOURCE_WORDS = 25  # length of every source sentence
PAPERS = dict(embed_dim=1024, ffn_dim=4096, heads=16)  # v3 Table 8, WMT'14
CPU_MODELS = {**MODELS, f"{SHARED}, reference": WITHOUT_CPP_LOOP}
GPU_MODELS = {
    **CPU_MODELS,
    f"{SHARED}, triton": Kind(FeedbackDecoderModel, {"memory_projections": "shared", "step_loop": "triton"}),
}


class Case(NamedTuple):
    """One row of the table.

    Attributes:
        kind: the model's name, in ``CPU_MODELS`` or ``GPU_MODELS``.
        layers: of its decoder.
        length: tokens of a hypothesis.
        generator: decodes with it.
        state_bytes: per hypothesis.
    """

    kind: str
    layers: int
    length: int
    generator: SequenceGenerator
    state_bytes: int

    @property
    def name(self) -> str:
        """The row's heading."""
        return f"{self.layers} layers, {self.length} tokens, {self.kind}"


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)

    text = "numbers of decoder layers (default: 1 2 6)"
    parser.add_argument("--layers", type=whole_number, nargs="+", default=[1, 2, 6], metavar="N", help=text)
    text = "tokens of a hypothesis (default: 25 200)"
    parser.add_argument("--lengths", type=whole_number, nargs="+", default=[25, 200], metavar="N", help=text)
    add_number(parser, "--embed-dim", 512, "model width")
    add_number(parser, "--ffn-dim", 1024, "feed-forward width")
    add_number(parser, "--heads", 4, "attention heads")
    add_number(parser, "--vocabulary", 10000, "size of the joint dictionary")
    add_number(parser, "--sentences", 16, "sentences of the batch")
    add_number(parser, "--beam", 5, "beam size")
    add_number(parser, "--repeats", 3, "number of timed runs, of which the median is reported; the models take turns")
    add_number(parser, "--threads", 1, "CPU threads")
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
                cases.append(Case(name, layers, length, generator, size))
    return sorted(cases, key=lambda case: case.length)


def decode(case: Case, sample: dict[str, dict]) -> None:
    """Decode the batch once.

    Raises:
        AssertionError: a hypothesis does not have the length it should have.
    """
    found = case.generator.generate([], sample)
    assert all(len(sentence[0]["tokens"]) == case.length + 1 for sentence in found)


def results_of_runs(args: argparse.Namespace, speeds: dict[str, float], cases: list[Case]) -> dict[str, dict]:
    """The results as the recipe of WMT'14 writes them, for ``fb-fairseq compare``.

    Args:
        args: the options.
        speeds: words per second, by the cases' names.
        cases: what was measured.
    """
    small = any(getattr(args, name) != size for name, size in PAPERS.items())
    found = {}
    for case in cases:
        if case.kind not in MODELS:  # the same models, computed in another way
            continue
        model, _, projections = case.kind.partition(", ")
        identity = {"recipe": "wmt14_en_de", "small": small, "layers": case.layers, "data": f"--lengths {case.length}"}
        identity["model"] = model.lower()
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
        times = interleaved_medians([partial(decode, case, sample) for case in cases], args.device, args.repeats)
    results, rows = {}, []
    for case, seconds in zip(cases, times):
        speed = args.sentences * case.length / seconds
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
