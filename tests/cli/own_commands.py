"""This package's commands, called in this process."""

import pytest


def one_line(capsys, command, *arguments):
    """The one line that a command prints when it ends with an error."""
    capsys.readouterr()
    with pytest.raises(SystemExit):
        command([*map(str, arguments)])
    (line,) = capsys.readouterr().err.splitlines()
    return line
