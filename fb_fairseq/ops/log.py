"""Lines in the log."""

import functools
import logging

logger = logging.getLogger(__name__)


@functools.cache
def log_once(text: str) -> None:
    """Log a warning, the first time only."""
    logger.warning(text)


def first_line(error: BaseException) -> str:
    """An error in one line."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
