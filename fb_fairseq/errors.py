"""Errors that the user can fix."""


class UserError(ValueError):
    """Bad input. The message is one line that names the option or file, and the remedy."""


def flag(name: str) -> str:
    """The command-line spelling of an option: ``decoder_layers`` to ``--decoder-layers``."""
    return f"--{name.replace('_', '-')}"
