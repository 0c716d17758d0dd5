"""Fix ``--log-file``."""

import logging
import os

from fb_fairseq.patches.wrapping import wrap_once


def patch_log_file() -> None:
    """Open ``--log-file`` once. fairseq adds another handler for it in every epoch, and each handler writes every line.

    Affects: fairseq 0.12.2, fairseq-fixed 0.12.3.1.
    Remove when: a supported fairseq fixes it; none does yet.
    """
    from fairseq.logging import progress_bar

    wrap_once(progress_bar, "progress_bar", "log_file", _progress_bar_with_one_log_file)


def _progress_bar_with_one_log_file(original, *args, log_file=None, **kwargs):
    from fairseq.logging import progress_bar

    handlers = progress_bar.logger.handlers
    opened = [handler.baseFilename for handler in handlers if isinstance(handler, logging.FileHandler)]
    if log_file is not None and os.path.abspath(log_file) in opened:
        log_file = None
    return original(*args, log_file=log_file, **kwargs)
