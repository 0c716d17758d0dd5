"""Checks of the options of agents, of training, and of environments."""

from math import inf

from fb_fairseq.errors import UserError, flag


def check_range(name: str, value: int, minimum: int, maximum: float = inf) -> None:
    """Check that an option is in its range.

    Args:
        name: of the option, with underscores.
        value: what was given.
        minimum: the smallest value allowed.
        maximum: the largest one.
    """
    if value < minimum:
        raise UserError(f"{flag(name)} {value}: give {minimum} or more")
    if value > maximum:
        raise UserError(f"{flag(name)} {value}: give {maximum} or less")
