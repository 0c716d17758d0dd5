"""The names of processors, and the size of the memory."""

import os
import platform
from collections.abc import Mapping

import torch

from fb_fairseq.errors import UserError, flag

LAYER = 10_000  # bytes that a layer takes at least, however small: it consists of Python objects
NUMBER = 4  # bytes of a parameter; models are built in fp32
MOST_THREADS = 1024


def hardware(device: str) -> str:
    """The name of the GPU, or of the CPU."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    try:
        with open("/proc/cpuinfo") as file:
            names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
        return names[0]
    except (OSError, IndexError):  # not Linux, or a CPU whose model is not listed
        return platform.processor() or platform.machine()


def training_hardware() -> str:
    """The hardware that a recipe trains on here: all GPUs or, without any, the CPU and torch's number of threads."""
    gpus = torch.cuda.device_count()
    if gpus:
        return f"{gpus} x {hardware('cuda')}" if gpus > 1 else hardware("cuda")
    threads = torch.get_num_threads()
    return f"{hardware('cpu')}, {threads} thread{'s' if threads > 1 else ''}"


def machine_memory() -> float:
    """The machine's memory in bytes; infinity where it cannot be told."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf, and some systems not these names
        return float("inf")


def check_layers_fit(sizes: Mapping[str, int | None]) -> None:
    """Check that a model's layers fit into the machine's memory; of each, only the feed-forward sublayer is counted.

    Otherwise the kernel ends the process when the memory is full, which may take minutes and hit other processes.
    (PyTorch itself refuses a single tensor that is larger than the memory.)

    ``sizes``: the number of layers, their width and the units of the feed-forward sublayer, by the names of their
    options."""
    layers, width, units = (size or 0 for size in sizes.values())
    needed, memory = layers * (LAYER + 2 * NUMBER * width * units), machine_memory()
    if needed > memory:
        options = ", ".join(f"{flag(name)} {size}" for name, size in sizes.items() if size)
        raise UserError(
            f"{options}: needs {needed / 1e9:,.0f} GB or more, and this machine has {memory / 1e9:,.0f}; "
            "give smaller sizes"
        )
