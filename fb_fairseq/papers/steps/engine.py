"""Runs the steps of a plan that are not done. Steps that do not depend on each other may run at the same time; see
``Step``.
"""

import os
import signal
import sys
import time
from collections.abc import Sequence

from fb_fairseq.errors import UserError
from fb_fairseq.folders import check_marked_folder, lock_folder
from fb_fairseq.interruption import RESUME, handling
from fb_fairseq.papers.results.record import MARK
from fb_fairseq.papers.steps import Step, environment, machine
from fb_fairseq.papers.steps.plan import Plan
from fb_fairseq.papers.steps.progress import EVERY, Progress, last_line
from fb_fairseq.papers.steps.running import Running, finish, launched, send
from fb_fairseq.papers.steps.show import typed

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]  # (Windows)
PAUSE = 0.05  # seconds between two looks at what runs


class Engine:
    """Runs the steps of a plan. Methods get the place of a step among them.

    Args:
        plan: what is to be done.
        jobs: how many steps may run at a time.
        told: whether their commands are printed.

    Attributes:
        waiting: the steps that have not begun, in order.
        running: those that run.
        errors: of those that have failed.
        left_out: those that did not run, as they depend on one that has failed.
        stopped: the signal that has stopped the call; 0: none has.
        made_on: the hardware and this package's version, as soon as a training has asked for them.
        progress: says how far all are.
    """

    def __init__(self, plan: Plan, jobs: int, told: bool):
        self.plan, self.jobs, self.told = plan, jobs, told
        self.waiting = list(range(len(plan.steps)))
        self.running: dict[int, Running] = {}
        self.errors: dict[int, str] = {}
        self.left_out: set[int] = set()
        self.stopped = 0
        self.made_on = ("", "")
        self.progress = Progress([step.does for step in plan.steps])

    def run(self) -> None:
        """Run all steps that are not done. A step that fails does not stop those that do not depend on it."""
        while self.running or self.waiting and not self.stopped:
            while not self.stopped and (place := self.next_step()) is not None:
                self.begin(place)
            for place, running in list(self.running.items()):
                self.watch(place, running)
            time.sleep(PAUSE)
        if self.errors and not self.stopped:
            raise UserError(f"{'; '.join(self.errors.values())}. Run the same command again to resume")

    def next_step(self) -> int | None:
        """The first step that may begin now. A step that has to run alone, and comes before it, goes first."""
        for place in self.waiting:
            limit = 1 if any(self.plan.steps[other].alone for other in [place, *self.running]) else self.jobs
            if len(self.running) >= limit:
                break
            if {*self.waiting, *self.running}.isdisjoint(self.plan.after[place]):
                return place
        return None

    def begin(self, place: int) -> None:
        """Start a step, unless it is done, or depends on one that has failed."""
        self.waiting.remove(place)
        if not {*self.errors, *self.left_out}.isdisjoint(self.plan.after[place]):
            self.left_out.add(place)
        elif self.plan.is_done(place):
            self.succeed(place)
        else:
            self.start(place)

    def watch(self, place: int, running: Running) -> None:
        """Look at a step that runs: say how far it is, or that it has ended."""
        step = self.plan.steps[place]
        if running.process.poll() is None:
            self.progress.tell(place, running.log, running.start)
            if time.monotonic() - running.noted > EVERY:
                self.note(place, running)
            return
        del self.running[place]
        error = finish(step, running)
        self.note(place, running, done=not error)
        if error:
            error = f"{error}; see {running.log}"
            self.errors[place] = f"{step.does} {error}"
            self.progress.end(place, error)
        else:
            self.succeed(place, last_line(running.log, running.start) if step.shown and not step.output else "")

    def succeed(self, place: int, result: str = "") -> None:
        """Say that a step is done, with its result, and show its output if that is to be shown."""
        step = self.plan.steps[place]
        self.progress.end(place, result)
        if step.shown and step.output:
            with open(step.output, encoding="utf-8", errors="replace") as file:
                print(file.read().strip(), flush=True)

    def start(self, place: int) -> None:
        """Start the command of a step."""
        step = self.plan.steps[place]
        self.progress.start(place)
        if self.told:
            print(typed(step), flush=True)
        log = step.log or os.path.join(self.plan.out, "logs", f"{step.does.replace(' ', '-').replace('/', '-')}.log")
        for path in (*step.writes, log):
            os.makedirs(os.path.dirname(path), exist_ok=True)
        variables = environment.variables()
        if self.jobs > 1:  # they share the CPU's cores
            variables.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // self.jobs)))
        if step.trains and not any(self.made_on):
            self.made_on = (machine.hardware(variables), machine.version())
        self.plan.begin(place, *self.made_on)
        if not step.trains:
            for path in filter(os.path.exists, step.writes):  # of an earlier command, or half-written
                os.remove(path)
        running = launched(step, log, variables)
        self.running[place] = running
        if self.stopped:  # while it was starting
            send(running.process, self.stopped)

    def note(self, place: int, running: Running, done: bool = False) -> None:
        """Write down the seconds of a step so far, and whether it is done."""
        now = time.monotonic()
        self.plan.note(place, now - running.noted, done)
        running.noted = now

    def stop(self, number: int, frame: object) -> None:
        """Pass a signal on to all commands; the second time, kill them."""
        again = self.stopped
        self.stopped = number
        for running in list(self.running.values()):
            send(running.process, signal.SIGKILL if again else number)


def run(recipe: str, steps: Sequence[Step], out: str, *, jobs: int = 1, processes: int = 1, told: bool = False) -> None:
    """Run the steps of a recipe that are not done.

    Args:
        recipe: its name, which the output folder keeps.
        steps: all steps of the call, in order.
        out: the output folder, which is made if there is none.
        jobs: how many may run at a time.
        processes: of each training.
        told: whether each command is printed when it begins.

    Exits with 128 + the number of a signal that has stopped the call.
    """
    for path in (path for step in steps for path in step.reads):
        if not os.path.isfile(path):
            raise UserError(
                f"{path or 'DATA'}: no such file; give one that exists (--help says which data a recipe needs)"
            )
    check_marked_folder("--out", out, os.path.join(out, MARK))
    lock_folder("--out", out)
    plan = Plan(recipe, out, steps, processes)
    plan.check()
    plan.write()  # first of all, as it marks the folder
    engine = Engine(plan, jobs, told)
    with handling(SIGNALS, engine.stop):
        try:
            engine.run()
        finally:
            for running in engine.running.values():  # after an error
                send(running.process, signal.SIGINT)
            for running in engine.running.values():
                running.process.wait()
    if engine.stopped:
        print(f"interrupted; {RESUME}", file=sys.stderr, flush=True)
        sys.exit(128 + engine.stopped)
