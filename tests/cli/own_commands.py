"""Commands that end with an error, in one line: this package's, called in this process, and those of the server."""

import re

import pytest

from tests.cli.command_server import Result


def one_line(capsys, command, *arguments):
    """The one line that a command of this package prints when it ends with an error."""
    capsys.readouterr()
    with pytest.raises(SystemExit):
        command([*map(str, arguments)])
    (line,) = capsys.readouterr().err.splitlines()
    return line


def refused(result: Result, message: str) -> None:
    """Assert that a command ended with this one line (a regular expression), which names the option or file."""
    assert result.status == 2, (result.out + result.errors)[-30:]
    (line,) = result.errors  # (the log goes to standard output)
    assert re.search(message, line), line
    assert re.match(r"(fairseq-[a-z-]+|fb-fairseq [a-z -]+): error: ", line), line
