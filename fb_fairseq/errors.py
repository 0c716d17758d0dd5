"""Errors that the user can mend."""


class UserError(ValueError):
    """Bad input. The message is one line that names the option or file, and the remedy."""
