"""Several runs of a recipe at a time (``--jobs``)."""

import os
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

from fb_fairseq.errors import UserError, single_line
from fb_fairseq.papers.runner.processes import RUNNING, Interrupted
from fb_fairseq.papers.runner.shell import Shell


class Jobs:
    """Runs functions, each with a shell of its own: one after the other, or ``number`` at a time.

    Args:
        shell: of the recipe.
        number: of runs at a time.
        keep_going: whether a run that fails does not stop the others, even if they are run one by one.
    """

    def __init__(self, shell: Shell, number: int = 1, keep_going: bool = False):
        self.shell = shell
        self.number = number if shell.parallel else 1
        self._at_once = self.number == 1 and not (keep_going and shell.parallel)
        self._pool = ThreadPoolExecutor(self.number)
        self._started: list[tuple[str, Future]] = []
        if self.number > 1 and "OMP_NUM_THREADS" not in os.environ:
            shell.variables["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // self.number))

    def start(self, name: str, function: Callable[[Shell], None]) -> None:
        """Run ``function(shell)``: now or, with two jobs or more, as soon as fewer are running."""
        if self._at_once:
            function(self.shell)
        else:
            shell = self.shell.named(name) if self.number > 1 else self.shell
            self._started.append((name, self._pool.submit(function, shell)))

    def wait(self, logs: str = "the lines with their names above") -> None:
        """Wait for all runs, and name those that have failed."""
        failed = []
        while self._started:
            name, run = self._started[0]
            wait([run], timeout=1)  # in pieces, in which signals arrive
            if not run.done():
                continue
            self._started.pop(0)
            error = run.exception()
            if isinstance(error, UserError):
                if not isinstance(error, Interrupted):
                    print(f"[{name}] error: {single_line(str(error))}", file=sys.stderr, flush=True)
                failed.append(name)
            elif error is not None:
                raise error
        RUNNING.check()
        if failed:
            raise UserError(f"some runs failed: {' '.join(failed)}; see {logs}. Run the same command again to resume")
