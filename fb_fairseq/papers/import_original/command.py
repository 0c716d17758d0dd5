"""Convert a checkpoint of facebookresearch/adaptive-span or facebookresearch/transformer-sequential to fairseq.

    fb-fairseq import-original checkpoint.pt --dict vocabulary.txt --out imported/model.pt

A post-norm Transformer or all-attention network, with or without adaptive spans, becomes relative_transformer_lm or
all_attention_lm; a sequential Transformer or Feedback Transformer (with shared or per-layer projections) becomes
relative_transformer_lm or feedback_transformer_lm. fairseq's commands evaluate the result, continue prompts with it,
and fine-tune it (--finetune-from-model). dict.txt is written next to it, for fairseq-preprocess --srcdict.
"""

from fb_fairseq.command_line import CommandParser, add_overwrite, whole_number
from fb_fairseq.commands.imported import write_checkpoint
from fb_fairseq.errors import UserError
from fb_fairseq.files import check_output_file
from fb_fairseq.papers.import_original.layers import PROGRAMS, Source, import_layers
from fb_fairseq.tensor_files import load_file, using

NAME = "import-original"


def read(path: str) -> Source:
    """Read an original checkpoint."""
    saved = load_file(path)
    state = saved.get("model") if isinstance(saved, dict) else None
    if not isinstance(state, dict):
        raise UserError(f"{path}: does not contain a model; give a checkpoint of {PROGRAMS}")
    return Source(path, state)


def convert(path: str, *, vocabulary: str, out: str, ramp: int, as_bytes: bool, overwrite: bool = False) -> None:
    """Convert an original checkpoint: write a fairseq checkpoint and ``dict.txt``, and print what was written.

    Args:
        path: the checkpoint.
        vocabulary: its symbols, one a line, or fairseq's ``dict.txt``.
        out: the checkpoint to write; ``dict.txt`` comes beside it.
        ramp: of adaptive spans, in steps, which the original does not contain.
        as_bytes: whether the symbols are bytes.
        overwrite: whether to replace files of an earlier call.
    """
    from fb_fairseq import patches  # noqa: F401  before fairseq is used
    from fb_fairseq.papers.import_original.dictionary import match_dictionary
    from fb_fairseq.papers.import_original.embeddings import embedding_tables, import_embeddings

    check_output_file("--out", out, NAME, overwrite)
    source = read(path)
    with using(path):
        trained = import_layers(source, ramp)
        symbols, indices = match_dictionary(vocabulary, sum(map(len, embedding_tables(source))), as_bytes)
        trained.symbols["dict.txt"] = symbols
        import_embeddings(source, indices, len(symbols), trained)
        source.check_all_taken()
        lines = write_checkpoint(NAME, out, trained)
    print(*lines, sep="\n")
    if trained.options["adaptive_span"]:
        print(f"The original checkpoint does not contain the ramp of adaptive spans; {ramp} is taken (--span-ramp).")


def main(argv=None) -> None:
    """Run the command; see ``--help``."""
    parser = CommandParser(NAME, description=__doc__)
    parser.add_argument("checkpoint", help="checkpoint of the original program")
    text = "its vocabulary: one symbol per line, in the program's order"
    parser.add_argument("--dict", required=True, metavar="FILE", help=text)
    parser.add_argument("--out", required=True, metavar="FILE.pt", help="fairseq checkpoint to write")
    add_overwrite(parser)
    text = "number of steps over which adaptive spans fade out (default: %(default)s)"
    parser.add_argument("--span-ramp", type=whole_number, default=32, metavar="R", help=text)
    text = "the symbols are bytes (numbers, or characters with _ for a space; <eos> is a newline), for data of "
    parser.add_argument("--bytes", action="store_true", help=f"{text}preprocess-bytes")
    args = parser.parse_args(argv)
    with parser.one_line_errors():
        convert(
            args.checkpoint,
            vocabulary=args.dict,
            out=args.out,
            ramp=args.span_ramp,
            as_bytes=args.bytes,
            overwrite=args.overwrite,
        )
