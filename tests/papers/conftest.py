"""Commands that refuse what they are given."""

import pytest


@pytest.fixture
def refused(capsys):
    """Calls a command's ``main``, or another function that does; returns the last line that it prints."""

    def call(main, *arguments):
        capsys.readouterr()
        with pytest.raises(SystemExit):
            main(*arguments)
        return capsys.readouterr().err.splitlines()[-1]

    return call
