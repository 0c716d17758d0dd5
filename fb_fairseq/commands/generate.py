"""Continue a text with a language model, and print it as it is generated.

    fb-fairseq generate --prompt "def main("
    fb-fairseq generate --path checkpoints/checkpoint_best.pt --prompt "First\\n" --length 500 --seed 3

For beam search, batches and scores, use fairseq-interactive or fairseq-generate. Byte models read and
write plain text; in the prompt, \\n, \\t, \\\\ and \\xHH are escapes. Word models read words of their
dictionary, separated by spaces.
"""

from itertools import chain

from fb_fairseq import pretrained
from fb_fairseq.command_line import CommandParser, add_cpu, seed
from fb_fairseq.commands.read_model import read_language_model
from fb_fairseq.errors import UserError
from fb_fairseq.printing import no_log

START = "def main("  # without a text before it, the model of Python code writes rows of quotes


def build_parser() -> CommandParser:
    """The command's options."""
    parser = CommandParser("generate", description=__doc__)
    parser.add_argument(
        "--path",
        default="python",
        metavar="MODEL",
        help="checkpoint of a language model, folder of an exported one, or python, a small model of Python code that "
        "comes with the package (default: %(default)s)",
    )
    parser.add_argument(
        "--data", metavar="FOLDER", help="folder with the model's dict.txt (default: the folder of its training data)"
    )
    text = parser.add_mutually_exclusive_group()
    text.add_argument(
        "--prompt", metavar="TEXT", help=f"text to continue (default: none; for the model python: {START!r})"
    )
    text.add_argument("--prompt-file", metavar="FILE", help="file with such a text, as it is: without escapes")
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
        "--seed", type=seed, metavar="N", help="random seed, for the same text again (default: a new text each time)"
    )
    add_cpu(parser)
    return parser


def main(argv=None) -> None:
    """Run the command; see ``--help``."""
    parser = build_parser()
    args = parser.parse_args(argv)
    parser.check_least(args, length=1, sampling_topk=0, temperature=0)
    with parser.one_line_errors(), no_log():
        from fb_fairseq.commands.texts import text_of
        from fb_fairseq.pretrained.model import sample

        model = read_language_model(args.path, args.data, args.cpu)
        if model.labels:
            raise UserError(
                f"--path {args.path}: gives labels, and cannot generate text; use explore, or evaluate-labels"
            )
        vocabulary = model.vocabulary
        if args.prompt_file:
            _, *prompt = text_of(model, None, args.prompt_file)  # (``sample`` reads </s> before it)
        else:
            start = "" if pretrained.find(args.path) == args.path else START
            prompt = vocabulary.encode_prompt(start if args.prompt is None else args.prompt)
        text = vocabulary.decoder()
        new = sample(
            model.reader(len(prompt) + args.length),
            prompt,
            length=args.length,
            temperature=args.temperature,
            topk=args.sampling_topk,
            vocabulary=vocabulary,
            seed=args.seed,
        )
        for token in chain(prompt, new):
            print(text(token), end="", flush=True)
        print()
