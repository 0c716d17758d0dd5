"""Print versions, devices, threads and the step loop that ``--step-loop auto`` takes.

    fb-fairseq env

For bug reports, and to see whether the step loop in C++ could be compiled.
"""

import os
import platform
import sys
from importlib import metadata

import torch

import fb_fairseq
from fb_fairseq.command_line import CommandParser
from fb_fairseq.errors import UserError
from fb_fairseq.hardware import hardware
from fb_fairseq.modules.options import STEP_LOOP_VARIABLE, TransformerOptions
from fb_fairseq.ops.feedback.cpp.library import cache_folder
from fb_fairseq.ops.feedback.loops import AUTO, LOOPS, PREFERRED, REFERENCE


def version_of(*packages: str) -> str:
    """The version of the first of some packages that is installed."""
    for name in packages:
        try:
            return f"{metadata.version(name)} ({name})"
        except metadata.PackageNotFoundError:
            continue
    return "not installed"


def step_loop() -> str:
    """The step loop that ``--step-loop auto`` takes here, and why."""
    try:
        name = TransformerOptions().loop_choice()
    except UserError as error:
        return str(error)
    texts = []
    for kind in ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]:
        loop = LOOPS[PREFERRED[kind] if name == AUTO else name]
        problem = loop.unavailable(torch.device(kind))
        details = problem or loop.details()
        texts.append(f"{REFERENCE if problem else loop.name} on {kind}{details and f' ({details})'}")
    texts.append(f"otherwise {REFERENCE}" if name == AUTO else f"as {STEP_LOOP_VARIABLE} says")
    return "; ".join(texts)


def compiled_files() -> str:
    """The folder of the compiled step loop."""
    try:
        return str(cache_folder())
    except RuntimeError as error:  # there is no home
        return f"nowhere ({error}); name a folder with FB_FAIRSEQ_CACHE"


def environment() -> dict[str, str]:
    """The facts to print, by name."""
    threads = torch.get_num_threads()
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "fb_fairseq": f"{fb_fairseq.__version__} (--user-dir {fb_fairseq.__path__[0]})",
        "Python": f"{platform.python_version()} ({sys.executable})",
        "fairseq": version_of("fairseq", "fairseq-fixed"),
        "torch": torch.__version__,
        "processor": f"{hardware('cpu')}, {os.cpu_count()} cores; torch uses {threads} thread{'s' * (threads > 1)}",
        "GPU": ", ".join(gpus) or "none that torch can use",
        "step loop": step_loop(),
        "compiled files": compiled_files(),
    }


def main(argv=None) -> None:
    """Run ``fb-fairseq env``."""
    parser = CommandParser("env", description=__doc__)
    parser.parse_args(argv)
    facts = environment()
    width = max(map(len, facts))
    print("\n".join(f"{name:{width}}  {value}" for name, value in facts.items()))
