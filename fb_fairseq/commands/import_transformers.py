"""Convert a model of fb_fairseq.transformers to a checkpoint of fairseq.

    fb-fairseq import-transformers model --out imported/model.pt

DIR was written by fb-fairseq export, or by save_pretrained after training with transformers. fairseq's
commands evaluate the result, decode with it, and fine-tune it (--finetune-from-model). Its dictionaries are written
beside it.
"""

from fb_fairseq import pretrained
from fb_fairseq.command_line import CommandParser, add_overwrite
from fb_fairseq.commands.imported import write_checkpoint
from fb_fairseq.files import check_output_file
from fb_fairseq.pretrained.folders import read_folder

NAME = "import-transformers"


def convert(folder: str, out: str, overwrite: bool = False) -> list[str]:
    """Write the checkpoint and its dictionaries. Returns lines that say what was written."""
    from fb_fairseq import patches  # noqa: F401  before fairseq is used

    check_output_file("--out", out, NAME, overwrite)
    return write_checkpoint(NAME, out, read_folder(pretrained.find(folder)))


def build_parser() -> CommandParser:
    """The command's options."""
    parser = CommandParser(NAME, description=__doc__)
    parser.add_argument("folder", metavar="DIR", help="folder of the model")
    parser.add_argument("--out", required=True, metavar="FILE.pt", help="fairseq checkpoint to write")
    add_overwrite(parser)
    return parser


def main(argv=None) -> None:
    """Run the command; see ``--help``."""
    parser = build_parser()
    args = parser.parse_args(argv)
    with parser.one_line_errors():
        lines = convert(args.folder, args.out, args.overwrite)
    print(*lines, sep="\n")
