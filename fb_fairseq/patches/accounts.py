"""The accounts that checkpoints give of their training, kept when this process reads them.

fairseq changes what it reads: afterwards a checkpoint no longer has it.
"""

import os
from typing import Any, NamedTuple

from fb_fairseq.checksums import trained_dictionaries
from fb_fairseq.tensor_files import model_options


class Account(NamedTuple):
    """A checkpoint's account of its training.

    Attributes:
        dictionaries: see ``fb_fairseq.checksums.trained_dictionaries``.
        model: its options by name; of a local file, as they were then: fairseq replaces some when it reads them
            (--model-overrides).
        task: the same of the task.
    """

    dictionaries: Any
    model: dict[str, Any]
    task: dict[str, Any]


# By the path of the checkpoint.
_accounts: dict[str, Account] = {}


def account_of(path: str) -> Account:
    """The account of a checkpoint that this process has read; an empty one, if another process has."""
    return _accounts.get(os.path.abspath(path), Account(None, {}, {}))


def keep_account(path: str, content: dict[str, Any]) -> None:
    """Keep the account of a checkpoint. ``content``: what its file holds."""
    account = Account(trained_dictionaries(content), model_options(content), model_options(content, "task"))
    _accounts[os.path.abspath(path)] = account
