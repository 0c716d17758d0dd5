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
