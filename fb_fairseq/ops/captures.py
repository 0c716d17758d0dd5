"""Which blocks and decoding steps run as CUDA graphs."""

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import torch

from fb_fairseq.ops import capturing
from fb_fairseq.ops.agreement import Undecided, disagreement
from fb_fairseq.ops.cuda_graphs import CaptureError
from fb_fairseq.ops.log import first_line, log_once

# What kernels depend on: the loop's name as a message gives it, and whatever else.
Setting = tuple[Hashable, ...]


class Comparison(NamedTuple):
    """The results of kernels, and of torch's operations: the arguments of ``disagreement``."""

    run: Callable[[], Any]
    reference: Callable[[], Any]
    dtype: torch.dtype
    exact: Callable[[], Any] | None


class Captured:
    """Something that was captured, with memory of its own.

    Attributes:
        kernels_of: the setting of its kernels; None: torch's operations were captured.
        checked: whether its results are known to be right.
    """

    kernels_of: Setting | None = None
    checked = False

    def is_free(self) -> bool:
        """Whether nothing needs its memory now, so that it can be replayed, or dropped."""
        return True

    def release(self) -> None:
        """Give back what lies in its memory, before it is dropped."""


class Captures:
    """Captured blocks or steps, by key: everything that a capture depends on, except the values of tensors.

    A key is captured when it has come often enough. Before a capture of kernels is used, its results are compared with
    those of torch's operations. Kernels that fail or compute something else are named once in the log and not used;
    torch's operations are captured instead.

    A capture of kernels is compared when it is to be used, until its results are known:

        they are right       it is ``checked``, and used from then on
        they are wrong       all captures of its setting are dropped; ``problems`` says why; torch's operations are
                             captured in their place, which are checked from the start
        nothing can be said  it is not used this time

    Otherwise a capture is dropped only if it was neither made nor used for a window: if more keys alternate than there
    is room for, capturing them again and again would cost more than it saves.

    Attributes:
        by_key: the captures.
        problems: by setting, why its kernels are not used; None: they are right.
        capture_at: something is captured when so many of a window have had its key. Rare keys are not worth it.
        kept: the most captures that are kept; each holds memory.
        window: uses that are counted together.
    """

    capture_at: int
    kept: int
    window = 1000

    def __init__(self):
        self.by_key: dict[tuple, Any] = {}
        self.problems: dict[Setting, str | None] = {}
        self._uses = 0
        self._seen: Counter[tuple] = Counter()
        self._last_used: dict[tuple, int] = {}
        capturing.owners_of_graphs.add(self)

    def find(
        self,
        key: tuple,
        setting: Setting,
        *,
        kernels: Callable[[], Captured | None],
        operations: Callable[[], Captured],
        comparison: Callable[[Captured], Comparison],
        at: int | None = None,
    ) -> Any:
        """The capture for a key, made now if it is time; None: there is none, or it cannot be used now.

        Args:
            key: everything that a capture depends on, except the values of tensors.
            setting: what its kernels depend on.
            kernels: captures them; returns None if there are none.
            operations: captures torch's operations.
            comparison: the results of a capture of kernels, and those of torch's operations.
            at: instead of ``capture_at``.

        Returns:
            What ``kernels`` or ``operations`` has returned.
        """
        self._uses += 1
        if self._uses % self.window == 0:
            self._seen.clear()
        self._seen[key] += 1
        found = self.by_key.get(key) or self._capture(key, setting, kernels, operations, at)
        if found is None or not found.is_free():
            return None
        if not found.checked:
            right = self.agrees(setting, comparison(found))
            if right is None:
                return None
            if right:
                found.checked = True
            else:  # it was dropped, with all captures of its setting
                found = self._capture(key, setting, kernels, operations, at)
        if found is not None:
            self._last_used[key] = self._uses
        return found

    def refuse(self, setting: Setting, problem: str) -> None:
        """Do not use the kernels of a setting from now on, and say so once in the log.

        Args:
            problem: why, in a few words.
        """
        self.problems[setting] = problem
        for key in [key for key, found in self.by_key.items() if found.kernels_of == setting]:
            self._drop(key)
        log_once(f"--step-loop {setting[0]}: {problem}; torch's operations run, as CUDA graphs")

    def trusts(self, setting: Setting, comparison: Callable[[], Comparison]) -> bool:
        """Whether a setting's kernels are right, by an earlier comparison or one that is made now."""
        if setting not in self.problems:
            return bool(self.agrees(setting, comparison()))
        return self.problems[setting] is None

    def agrees(self, setting: Setting, comparison: Comparison) -> bool | None:
        """Compare a setting's kernels with torch's operations. Wrong ones are refused.

        Returns:
            Whether they are right. None: nothing can be said.
        """
        try:
            problem = disagreement(*comparison)
        except (Undecided, torch.cuda.OutOfMemoryError):
            return None
        if problem is not None:
            self.refuse(setting, problem)
            return False
        self.problems.setdefault(setting, None)
        return True

    def _capture(
        self, key: tuple, setting: Setting, kernels: Callable, operations: Callable, at: int | None
    ) -> Captured | None:
        """Capture a key, if it is time and there is room."""
        if self._seen[key] < (at or self.capture_at) or not self._has_room():
            return None
        try:
            found = self._kernels(setting, kernels)
            if found is None:
                found = operations()
                found.checked = True
        except Exception as error:  # out of memory, say
            capturing.disable_capturing(error)
            return None
        self.by_key[key] = found
        self._last_used[key] = self._uses
        return found

    def _kernels(self, setting: Setting, kernels: Callable) -> Captured | None:
        """Capture kernels; None: there are none, they are not used, or do not compile."""
        if self.problems.get(setting) is not None:
            return None
        try:
            found = kernels()
        except (CaptureError, torch.cuda.OutOfMemoryError):
            raise
        except Exception as error:
            self.refuse(setting, f"failed: {first_line(error)}")
            return None
        if found is not None:
            found.kernels_of = setting
        return found

    def _has_room(self) -> bool:
        """Drop what was neither made nor used for a window. Returns whether there is room for one more."""
        oldest = self._uses - self.window
        for key in [key for key in self.by_key if self._last_used[key] < oldest]:
            if self.by_key[key].is_free():
                self._drop(key)
        return len(self.by_key) < self.kept

    def _drop(self, key: tuple) -> None:
        self.by_key.pop(key).release()
        del self._last_used[key]

    def clear(self) -> None:
        """Free the captures and their memory. Keys that have come often in this window are captured again at once."""
        for key in list(self.by_key):
            self._drop(key)


def modes_of_products() -> tuple[str, bool]:
    """torch's modes that decide how products are computed, and so what a graph does."""
    return torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled()
