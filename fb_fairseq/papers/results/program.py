"""The command line of a module whose function ``main`` takes words."""

import inspect
from collections.abc import Callable

from fb_fairseq.command_line import CommandParser
from fb_fairseq.printing import replace_in_output


def run_main(main: Callable) -> None:
    """Run ``python -m MODULE …``: call ``main`` with the words of the command line.

    Args:
        main: its parameters are the arguments, of these types; the last one may be a list of words, at least one.
    """
    replace_in_output()
    module = main.__globals__
    parser = CommandParser(prog=f"python -m {module['__spec__'].name}", description=module["__doc__"])
    for name, parameter in inspect.signature(main).parameters.items():
        kind = {"nargs": "+"} if parameter.annotation == list[str] else {"type": parameter.annotation}
        parser.add_argument(name, metavar=name.upper(), **kind)
    args = parser.parse_args()
    with parser.one_line_errors():
        main(**vars(args))
