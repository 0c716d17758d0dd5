"""The command line of a module whose function ``main`` takes words."""

import inspect
from collections.abc import Callable

from fb_fairseq.command_line import CommandParser, replace_in_output


def run_main(main: Callable) -> None:
    """Run ``python -m MODULE …``: call ``main`` with the words of the command line. Its parameters are the arguments,
    their types are converted.
    """
    replace_in_output()
    module = main.__globals__
    parser = CommandParser(prog=f"python -m {module['__spec__'].name}", description=module["__doc__"])
    parameters = inspect.signature(main).parameters.values()
    for parameter in parameters:
        several = parameter.kind is parameter.VAR_POSITIONAL
        parser.add_argument(
            parameter.name, type=parameter.annotation, nargs="+" if several else None, metavar=parameter.name.upper()
        )
    given = vars(parser.parse_args())
    with parser.one_line_errors():
        words = [given[each.name] if each.kind is each.VAR_POSITIONAL else [given[each.name]] for each in parameters]
        main(*(word for group in words for word in group))
