"""Continue a text with a language model, and print it as it is generated.

    python -m fb_fairseq generate --path checkpoints/checkpoint_best.pt --prompt "def main("
    python -m fb_fairseq generate --path checkpoints/checkpoint_best.pt --prompt "First\\n" --length 500 --seed 3

For beam search, batches and scores, use ``fairseq-interactive`` or ``fairseq-generate``. Byte models read and
write plain text; in the prompt, ``\\n``, ``\\t``, ``\\\\`` and ``\\xHH`` are escapes. Word models read words of their
dictionary, separated by spaces.
"""

import codecs
import contextlib
import logging
import sys
from collections.abc import Callable, Iterator

from fb_fairseq import byte_codec
from fb_fairseq.command_line import CommandParser
from fb_fairseq.errors import UserError, flag

LOWEST_TEMPERATURE = 1e-30  # logits that are divided by less overflow


def build_parser() -> CommandParser:
    """The command's options."""
    parser = CommandParser("generate", description=__doc__)
    parser.add_argument("--path", required=True, metavar="FILE.pt", help="checkpoint of a language model")
    parser.add_argument(
        "--data", metavar="FOLDER", help="folder with the model's dict.txt (default: the folder of its training data)"
    )
    parser.add_argument("--prompt", default="", metavar="TEXT", help="text to continue (default: none)")
    parser.add_argument(
        "--length",
        type=int,
        default=300,
        metavar="N",
        help="maximum number of symbols to generate (default: %(default)s)",
    )
    parser.add_argument(
        "--temperature",
        type=float,
        default=1.0,
        metavar="X",
        help="below 1: likelier text; above 1: more varied text; 0: always the likeliest symbol (default: %(default)s)",
    )
    parser.add_argument(
        "--sampling-topk",
        type=int,
        default=10,
        metavar="K",
        help="sample from the K likeliest symbols; 0: from all (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", help="random seed, for the same text again (default: a new text each time)"
    )
    parser.add_argument("--cpu", action="store_true", help="run on the CPU (default: a GPU if there is one)")
    return parser


def load(path: str, data: str | None):
    """A checkpoint's model in evaluation mode, and its task."""
    from fb_fairseq import patches  # noqa: F401  before fairseq is used

    # isort: split
    from fairseq import checkpoint_utils
    from fairseq.models import FairseqLanguageModel

    import fb_fairseq.models  # noqa: F401  --user-dir does this in fairseq's commands
    import fb_fairseq.tasks  # noqa: F401

    overrides = {} if data is None else {"data": data}
    models, _, task = checkpoint_utils.load_model_ensemble_and_task([path], arg_overrides=overrides)
    if not isinstance(models[0], FairseqLanguageModel):
        raise UserError(f"--path {path}: does not contain a language model; use fairseq-interactive for translation")
    if getattr(task.args, "labels", False):
        raise UserError(f"--path {path}: was trained with --labels, and cannot generate text; use evaluate-labels")
    return models[0].eval(), task


def encode(prompt: str, dictionary, option: str = "--prompt") -> list[int]:
    """The symbols of a prompt. ``option``: the option that gives the prompt."""
    if byte_codec.is_byte_dictionary(dictionary):
        try:
            symbols = byte_codec.encode(byte_codec.unescape(prompt))
        except ValueError as error:
            raise UserError(f"{option}: {str(error).partition(': ')[2]}") from None
    else:
        symbols = prompt.split()
    for symbol in symbols:
        if symbol not in dictionary:
            raise UserError(
                f"{option}: {symbol!r} is not in dict.txt; tokenise the text like the training text, and write "
                f"{dictionary.unk_word} for an unknown word"
            )
    return [dictionary.index(symbol) for symbol in symbols]


def decoder(dictionary) -> Callable[[int], str]:
    """A function that gives each symbol's text, in order. The bytes of a character are printed with its last one."""
    if not byte_codec.is_byte_dictionary(dictionary):
        return lambda index: "\n" if index == dictionary.eos() else dictionary[index] + " "
    characters = codecs.getincrementaldecoder("utf-8")("replace")
    return lambda index: characters.decode(byte_codec.decode([dictionary[index]]))


def choices(lprobs, never: list[int], temperature: float, topk: int):
    """The distribution that the next symbol is drawn from.

    Args:
        lprobs: the model's log-probabilities [V].
        never: symbols that are not drawn.
        temperature, topk: see ``sample``.

    Returns:
        Probabilities and the symbols that have them, the likeliest first."""
    import torch

    lprobs = lprobs.index_fill(0, torch.tensor(never, device=lprobs.device), -float("inf"))
    greedy = temperature < LOWEST_TEMPERATURE
    best, symbols = lprobs.topk(1 if greedy else min(topk or len(lprobs), len(lprobs)))
    return torch.softmax(best / (1 if greedy else temperature), 0), symbols


def sample(model, dictionary, prompt: list[int], length: int, temperature: float, topk: int) -> Iterator[int]:
    """Generate symbols one by one. Ends after ``length`` of them, and with byte models at ``</s>``, a document's end.

    Args:
        prompt: the symbols to continue.
        temperature: the logits are divided by it; 0, or too small to divide by: the likeliest symbol.
        topk: the number of symbols to choose from; 0: all."""
    import torch

    device = next(model.parameters()).device
    tokens, state = torch.tensor([[dictionary.eos(), *prompt]], device=device), {}
    never = [dictionary.bos(), dictionary.pad(), dictionary.unk()]
    with torch.no_grad():
        for _ in range(length):
            out, extra = model.decoder(tokens, incremental_state=state)
            lprobs = model.get_normalized_probs((out[:, -1:], extra), log_probs=True)[0, -1].float()
            probabilities, symbols = choices(lprobs, never, temperature, topk)
            chosen = symbols[torch.multinomial(probabilities, 1)[0]]
            index = int(chosen)
            if index == dictionary.eos() and byte_codec.is_byte_dictionary(dictionary):
                return
            yield index
            tokens = torch.cat([tokens, chosen.view(1, 1)], 1)


def check(args) -> None:
    """Check the numbers."""
    for name, lowest in (("length", 1), ("sampling_topk", 0), ("temperature", 0)):
        value = getattr(args, name)
        if not lowest <= value < float("inf"):
            raise UserError(f"{flag(name)} {value}: must be {lowest} or more")


@contextlib.contextmanager
def no_log():
    """Nothing but the text is printed: fairseq's log of INFO is off inside."""
    before = logging.root.manager.disable
    logging.disable(logging.INFO)
    try:
        yield
    finally:
        logging.disable(before)


def main(argv=None) -> None:
    """Run the command; see ``--help``."""
    parser = build_parser()
    args = parser.parse_args(argv)
    with parser.one_line_errors(), no_log():
        check(args)
        import torch

        model, task = load(args.path, args.data)
        if args.seed is not None:
            torch.manual_seed(args.seed)
        else:
            torch.seed()
        model.to("cuda" if torch.cuda.is_available() and not args.cpu else "cpu")
        dictionary = task.source_dictionary
        prompt = encode(args.prompt, dictionary)
        text = decoder(dictionary)
        write = lambda part: (sys.stdout.write(part), sys.stdout.flush())
        for index in prompt:
            write(text(index))
        for index in sample(model, dictionary, prompt, args.length, args.temperature, args.sampling_topk):
            write(text(index))
        write("\n")
