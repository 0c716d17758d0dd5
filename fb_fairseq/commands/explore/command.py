"""Look into a language model in the browser.

    fb-fairseq explore
    fb-fairseq explore checkpoints/checkpoint_best.pt
    fb-fairseq explore model --port 8000

Serves a page on this machine, at http://127.0.0.1:7860. Type a text, and see how surprising each byte or token is, what
the model expects next, which past steps each layer and head attends to, the memory itself, and the layers' weights in
it. Generate step by step. MODEL is a checkpoint of a language model of this package, or a folder that
fb-fairseq export has written.
"""

import os
import socket
import threading

from fb_fairseq.command_line import CommandParser, add_cpu
from fb_fairseq.errors import UserError
from fb_fairseq.printing import no_log

HOST, PORT = "127.0.0.1", 7860
OWN = ("127.0.0.1", "localhost", "::1")  # addresses that only this machine reaches


def build_parser() -> CommandParser:
    """The command's options."""
    parser = CommandParser("explore", description=__doc__)
    parser.add_argument(
        "model",
        nargs="?",
        default="python",
        metavar="MODEL",
        help="checkpoint, folder of an exported model, or a model that comes with the package: python, which continues "
        "code, or a5, which keeps track of a product (default: %(default)s)",
    )
    parser.add_argument(
        "--data", metavar="FOLDER", help="folder with the model's dict.txt (default: the folder of its training data)"
    )
    parser.add_argument("--prompt", metavar="TEXT", help="text to begin with (default: an example)")
    parser.add_argument(
        "--max-steps",
        type=int,
        default=1000,
        metavar="N",
        help="how many bytes or tokens a text may have (default: %(default)s)",
    )
    parser.add_argument(
        "--host",
        default=HOST,
        help="address to serve the page at; 0.0.0.0: to all who can reach this machine (default: %(default)s, to this "
        "machine only)",
    )
    parser.add_argument("--port", type=int, default=PORT, help="port of the page; 0: any free (default: %(default)s)")
    add_cpu(parser)
    return parser


def free_port(host: str, port: int) -> int:
    """The port, if the page can be served there; of 0, any that is free."""
    if not 0 <= port < 1 << 16:
        raise UserError(f"--port {port}: must be between 0 and 65535")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server's own
            listener.bind(address)
            listener.listen()
            return listener.getsockname()[1]
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"--host {host} --port {port}: cannot be served ({reason}); give {HOST}, or 0.0.0.0 for all, and another "
            "port, or 0 for any that is free"
        ) from None


def main(argv=None) -> None:
    """Run the command; see ``--help``."""
    parser = build_parser()
    args = parser.parse_args(argv)
    parser.check_least(args, max_steps=1)
    with parser.one_line_errors():
        port = free_port(args.host, args.port)  # before anything that takes long
        os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # before gradio is imported
        from fb_fairseq.commands.explore.page import build_page
        from fb_fairseq.commands.explore.reading import load
        from fb_fairseq.commands.explore.server import serve

        with no_log():
            page = build_page(load(args.model, args.data, args.cpu), args.max_steps, args.prompt)
            serve(page, args.host, port)
        if args.host not in OWN:
            print(f"--host {args.host}: whoever reaches this machine can use the model", flush=True)
        print(f"Open {page.local_url} in a browser. Ctrl-C ends it.", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            page.close(verbose=False)
