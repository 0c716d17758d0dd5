"""Speed of text generation with Hugging Face transformers, beside fairseq's, with the same model in one process.

    OMP_NUM_THREADS=1 taskset -c 1 python examples/benchmark/generation.py
    python examples/benchmark/generation.py --path checkpoints/checkpoint_best.pt

All choose the likeliest symbol, and compute each step natively where possible: ``generate`` of transformers, the
``SequenceGenerator`` of fairseq-interactive (which reads the prompt step by step, too), and ``fb-fairseq
generate``, which takes no batches. They take turns, so that other load on the machine slows down all of them alike.
Without ``--path``, the model has two layers of width 128 and random parameters. Prints a table, and last a JSON line.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))

import torch

from fb_fairseq import patches  # noqa: F401  before fairseq is used

# isort: split
import transformers
from fairseq import checkpoint_utils
from fairseq.sequence_generator import SequenceGenerator
from transformers import AutoModelForCausalLM

import fb_fairseq.tasks  # noqa: F401  which the checkpoint names
from fb_fairseq.command_line import whole_number
from fb_fairseq.commands.export.command import main as export
from fb_fairseq.errors import UserError
from fb_fairseq.hardware import hardware
from fb_fairseq.models.language_models import FeedbackTransformerLanguageModel, FeedbackTransformerLMConfig
from fb_fairseq.modules.language_model import MANY
from fb_fairseq.papers.benchmark.options import add_number
from fb_fairseq.papers.benchmark.random_models import dictionary
from fb_fairseq.papers.benchmark.tables import table
from fb_fairseq.papers.benchmark.timing import interleaved_medians
from fb_fairseq.pretrained.model import sample
from fb_fairseq.pretrained.vocabulary import Vocabulary
from fb_fairseq.transformers import FeedbackTransformerConfig, FeedbackTransformerForCausalLM
from fb_fairseq.transformers.configuration import EOS, PAD

SIZES = dict(
    decoder_layers=2,
    decoder_embed_dim=128,
    decoder_ffn_embed_dim=512,
    decoder_attention_heads=4,
    decoder_normalize_before=True,
    attention_span=64,
)
BYTES = 260  # size of the dictionary of bytes
HF, FAIRSEQ, COMMAND = "transformers' generate", "fairseq's SequenceGenerator", "fb-fairseq generate"


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--path", metavar="FILE.pt", help="checkpoint of a language model (default: a random model)")
    parser.add_argument(
        "--data", metavar="FOLDER", help="folder with its dict.txt (default: that of its training data)"
    )
    parser.add_argument(
        "--batch-size",
        type=whole_number,
        nargs="+",
        default=[1, 16],
        metavar="N",
        help="number of texts (default: 1 16)",
    )
    add_number(parser, "--prompt", 8, "symbols of a prompt")
    add_number(parser, "--length", 256, "symbols to generate")
    add_number(parser, "--repeats", 9, "number of rounds; the median counts")
    return parser.parse_args()


def models(args: argparse.Namespace):
    """The model in fairseq, the same one in transformers, and fairseq's dictionary.

    Raises:
        UserError: ``--path`` is no checkpoint of a model that can be exported.
    """
    if args.path:
        overrides = {"data": args.data} if args.data else {}
        (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([args.path], arg_overrides=overrides)
        with tempfile.TemporaryDirectory() as folder:
            export([args.path, "--to", os.path.join(folder, "model"), *(["--dict", args.data] if args.data else [])])
            exported = AutoModelForCausalLM.from_pretrained(os.path.join(folder, "model")).eval()
        return model.eval(), exported, task.source_dictionary
    cfg, symbols = FeedbackTransformerLMConfig(**SIZES), dictionary(BYTES)
    task = argparse.Namespace(source_dictionary=symbols, target_dictionary=symbols)
    model = FeedbackTransformerLanguageModel.build_model(cfg, task).eval()
    exported = FeedbackTransformerForCausalLM(FeedbackTransformerConfig(vocab_size=len(symbols), **SIZES)).eval()
    exported.load_state_dict(model.state_dict())
    return model, exported, symbols


def cases(args: argparse.Namespace, batch_size: int, fairseq_model, hf_model, symbols) -> dict[str, Callable]:
    """What is measured, by name: functions that return the new symbols."""
    prompts_BT = torch.randint(4, len(symbols), (batch_size, args.prompt))
    prompts_BT[:, 0] = EOS
    length = args.prompt - 1 + args.length
    generator = SequenceGenerator([fairseq_model], symbols, beam_size=1, max_len_b=length, min_len=length)
    inputs = {"net_input": {"src_tokens": prompts_BT, "src_lengths": torch.full((batch_size,), args.prompt)}}
    # Of the given length, in both: fairseq never chooses padding, and </s> only at the end.
    options = dict(max_new_tokens=args.length, do_sample=False, eos_token_id=-1, suppress_tokens=[PAD, EOS])
    options.update(attention_mask=torch.ones_like(prompts_BT), pad_token_id=PAD)

    def with_transformers() -> list[list[int]]:
        return hf_model.generate(prompts_BT, **options)[:, args.prompt :].tolist()

    def with_fairseq() -> list[list[int]]:
        results = generator.generate([fairseq_model], inputs, prefix_tokens=prompts_BT[:, 1:], bos_token=EOS)
        return [best["tokens"][-args.length - 1 : -1].tolist() for best, *_ in results]

    def with_command() -> list[list[int]]:
        new = sample(
            hf_model.decoder.reader(MANY),
            prompts_BT[0, 1:].tolist(),
            args.length,
            temperature=0,
            topk=1,
            vocabulary=Vocabulary(symbols.symbols),
        )
        return [list(new)]

    functions: dict[str, Callable] = {HF: with_transformers, FAIRSEQ: with_fairseq}
    if batch_size == 1 and len(with_command()[0]) == args.length:  # (it ends at </s>)
        functions[COMMAND] = with_command
    return functions


def main() -> None:
    """Run the command: print a table, and last a JSON line with the setting and the hardware."""
    args = parse()
    torch.manual_seed(0)
    transformers.logging.set_verbosity_error()  # it warns of eos_token_id=-1
    try:
        model, exported, symbols = models(args)
    except (UserError, OSError) as error:
        sys.exit(f"error: {error}")
    rows, results = [], {}
    with torch.no_grad():
        for batch_size in args.batch_size:
            functions = cases(args, batch_size, model, exported, symbols)
            assert functions[HF]() == functions[FAIRSEQ](), "the texts differ"
            times = dict(zip(functions, interleaved_medians(list(functions.values()), "cpu", args.repeats)))
            for name, time in times.items():
                speed = batch_size * args.length / time
                rows.append([f"{name}, batch of {batch_size}", time / args.length * 1e3, speed, times[FAIRSEQ] / time])
                results[f"{name}, batch of {batch_size}"] = {
                    "tokens_per_second": round(speed, 1),
                    "ratio": round(times[FAIRSEQ] / time, 4),
                }
    table(["", "ms per step", "tokens/s", "relative to fairseq's"], rows)
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    print(json.dumps({"results": results, "setting": {**vars(args), "hardware": hardware("cpu"), **versions}}))


if __name__ == "__main__":
    main()
