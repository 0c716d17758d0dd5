"""The names of processors."""

import platform

import torch


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
