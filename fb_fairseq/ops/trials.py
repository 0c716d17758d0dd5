"""Times several implementations on real input and keeps the fastest that agrees.

The results of each candidate are compared with those of the first, the reference. What fails or differs is left out.
"""

import hashlib
import json
import logging
import math
import time
from collections import Counter
from typing import Any, Callable, Dict, Generic, Hashable, List, NamedTuple, Optional, Tuple, TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from fb_fairseq.ops.cuda_graph import tensors
from fb_fairseq.ops.fallbacks import first_line
from fb_fairseq.ops.layers import at_least_fp32

logger = logging.getLogger(__name__)

ATTEMPTS = 100  # to choose, where that fails: the reference's results are not finite, say
REPEATS = 3  # runs that are timed, after a first one whose results are compared
# How far results may be from the reference, relative to its norm.
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 5e-2}
TF32_TOLERANCE = 1e-2
# Gradients that should be zero, such as that of a key's bias, are noise. A tensor's error counts relative to this share
# of the largest norm, if its own norm is less.
LEAST_NORM = 0.05
# In half precision the first candidate is rounded itself. Where exact results are known, its error is the yardstick:
# others may be so many times as far from them, or as far as the tolerance of fp32.
WORSE = 2

Name = TypeVar("Name", bound=Hashable)
Tree = TypeVar("Tree")

_asked: Counter = Counter()  # how often this process has asked for a choice


class Trial(NamedTuple):
    """What came of a candidate: its time, or the problem for which it is left out."""

    milliseconds: Optional[float]
    problem: Optional[str] = None


# Sets a candidate up, and returns the function that is compared and timed.
Candidate = Callable[[], Callable[[], Any]]


def ranking(
    title: str,
    candidates: Dict[Name, Candidate],
    device: torch.device,
    dtype: torch.dtype,
    exact: Optional[Candidate] = None,
) -> List[Name]:
    """The candidates that agree with the first, the fastest first; logged in one line with the figures.

    The first one is always among them. If it fails, or its results are not finite, nothing can be said: the list is
    empty.

    Args:
        title: what is chosen, for the log.
        candidates: by name. Their results are lists of groups of tensors.
        device: on which they run.
        dtype: of the matrix products, which decides how far results may differ.
        exact: computes the same in fp32, for types of half precision. Then all candidates, the first too, are compared
            with that, and what is clearly worse than the first is left out.
    """
    reference: List[List[Tensor]] = []
    first_error: Optional[float] = None
    if exact is not None:
        reference = [[x.clone() for x in tensors(group)] for group in exact()()]
    trials: Dict[Name, Trial] = {}
    for name, candidate in candidates.items():
        try:
            run = candidate()
            result = [[x.clone() for x in tensors(group)] for group in run()]
            reference = reference or result
            if exact is None:
                problem = disagreement(result, reference, dtype)
            else:
                errors = distances(result, reference)
                first_error = max(errors) if first_error is None else first_error
                problem = too_far(errors, max(TOLERANCES[torch.float32], WORSE * first_error))
            trials[name] = Trial(None, problem) if problem else Trial(milliseconds(run, device))
        except Exception as error:  # whatever it is, another candidate can run
            trials[name] = Trial(None, f"failed: {first_line(error)}")
        if len(trials) == 1 and trials[name].problem:
            logger.info(f"{title}: no choice was made, {name} {trials[name].problem}")
            return []
        run = result = None  # frees its memory before the next one starts
    timed = {name: trial.milliseconds for name, trial in trials.items() if trial.problem is None}
    ranked = sorted(timed, key=timed.__getitem__)
    logger.info(summary(title, ranked, trials))
    return ranked


def summary(title: str, ranked: List[Name], trials: Dict[Name, Trial]) -> str:
    """One line: the fastest, the times of the others, and what was left out for what reason."""
    times = [f"{name} {trials[name].milliseconds:.3g} ms" for name in ranked]
    left_out = [f"{name} left out: {trial.problem}" for name, trial in trials.items() if trial.problem]
    return f"{title}: " + "; ".join(times + left_out)


def milliseconds(run: Callable[[], Any], device: torch.device) -> float:
    """The time of a run, the host's part included."""
    synchronize(device)
    start = time.perf_counter()
    for _ in range(REPEATS):
        run()
    synchronize(device)
    return (time.perf_counter() - start) / REPEATS * 1e3


def synchronize(device: torch.device) -> None:
    """Wait for what a GPU was given to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def in_fp32(tree: Tree) -> Tree:
    """The same nested tuples, lists and dictionaries with floating-point tensors in fp32."""
    return pytree.tree_map(lambda x: x.float() if torch.is_tensor(x) and x.is_floating_point() else x, tree)


def disagreement(result: List[List[Tensor]], reference: List[List[Tensor]], dtype: torch.dtype) -> Optional[str]:
    """How far a result is from the reference, if it is too far; None: they agree."""
    tolerance = TOLERANCES[dtype]
    if dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest":
        tolerance = TF32_TOLERANCE
    return too_far(distances(result, reference), tolerance)


def distances(result: List[List[Tensor]], reference: List[List[Tensor]]) -> List[float]:
    """How far each group of a result is from the reference: the largest of its tensors' errors, relative to norms."""
    found = []
    for ours, expected in zip(result, reference):
        if not expected:
            continue
        norms = torch.stack([at_least_fp32(x).norm().float() for x in expected])
        errors = torch.stack([(at_least_fp32(a) - at_least_fp32(b)).norm().float() for a, b in zip(ours, expected)])
        found.append((errors / norms.clamp(min=LEAST_NORM * norms.max()).clamp(min=1e-30)).max().item())
    return found


def too_far(errors: List[float], tolerance: float) -> Optional[str]:
    """The problem that errors are; None: none. (A reference that is not finite disagrees with itself.)"""
    for error in errors:
        if not error <= tolerance:
            return f"its results differ by {error:.1g}" if math.isfinite(error) else "its results are not finite"
    return None


def agreed(name: str, choose: Callable[[], list]) -> Optional[list]:
    """A choice that all processes of ``torch.distributed`` make alike: that of rank 0.

    No process waits for another one, because processes may come here at different blocks: until rank 0 has chosen, the
    others go on without a choice. They ask less and less often, because asking takes time.

    Args:
        name: what is chosen; the same on all processes.
        choose: makes the choice, which JSON can express, or returns an empty list; called on rank 0 only.

    Returns:
        The choice; None as long as rank 0 has not made it.
    """
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return choose() or None
    key = f"fb_fairseq/{hashlib.sha256(name.encode()).hexdigest()}"
    choice: list = []
    if torch.distributed.get_rank() == 0:
        choice = choose()
    else:
        _asked[key] += 1
        if _asked[key] & (_asked[key] - 1):  # not a power of two
            return None
    try:  # (The process that keeps the store may have ended.)
        store = torch.distributed.distributed_c10d._get_default_store()
        if choice:
            store.set(key, json.dumps(choice))
        elif store.check([key]):
            choice = json.loads(store.get(key).decode())
    except RuntimeError:
        pass
    return choice or None


class Choices(Dict[Tuple, List[Name]], Generic[Name]):
    """Rankings by setting, the same on all processes; see ``agreed``.

    Args:
        title: what is chosen.
        otherwise: what is taken where no choice can be made.
        kind: class of what is ranked, a named tuple.
    """

    def __init__(self, title: str, otherwise: List[Name], kind: Callable[..., Name]):
        super().__init__()
        self.title, self.otherwise, self.kind = title, otherwise, kind
        self._attempts: Counter = Counter()

    def find(self, setting: Tuple, choose: Callable[[], List[Name]]) -> Optional[List[Name]]:
        """The ranking for a setting; None: there is none yet.

        Args:
            choose: makes it, or returns an empty list; called again until it succeeds, at most ``ATTEMPTS`` times.
        """
        if setting not in self:
            self._attempts[setting] += 1
            choice = agreed(f"{self.title} {setting}", choose)
            if choice is None and self._attempts[setting] < ATTEMPTS:
                return None
            self[setting] = [self.kind(*entry) for entry in choice] if choice else self.otherwise
        return self[setting]
