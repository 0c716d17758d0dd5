"""Several processes, on CPUs and under torchrun."""

import multiprocessing
import os
import signal

import torch

from fb_fairseq.patches.wrapping import wrap_once

# Environment variables that torchrun sets in each process.
TORCHRUN_VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")


def patch_torchrun() -> None:
    """Let the processes that torchrun has started form one group, on machines without GPUs too.

    fairseq-fixed returns early because its world size is 1 by default: each process trains alone and overwrites the
    others' checkpoints. With the world size set, it divides by the number of GPUs, which may be 0.

    Affects: fairseq-fixed 0.12.3.1. (On fairseq 0.12.2 the patch changes nothing.)
    Remove when: a supported fairseq-fixed fixes both.
    """
    from fairseq.distributed import utils

    wrap_once(utils, "infer_init_method", "torchrun", _infer_init_method)


def _infer_init_method(original, cfg, *args, **kwargs):
    under_torchrun = all(name in os.environ for name in TORCHRUN_VARIABLES)
    if under_torchrun and cfg.distributed_init_method is None:
        cfg.distributed_world_size = int(os.environ["WORLD_SIZE"])
        if torch.cuda.device_count() == 0:
            cfg.distributed_init_method = "env://"
            cfg.distributed_rank = int(os.environ["RANK"])
            cfg.distributed_no_spawn = True
            return
    original(cfg, *args, **kwargs)


def patch_ddp_on_cpu() -> None:
    """Let ``--ddp-backend pytorch_ddp``, the default, run on CPUs: fairseq names a GPU to PyTorch."""
    from fairseq.models import distributed_fairseq_model

    wrap_once(distributed_fairseq_model, "DistributedDataParallel", "ddp_on_cpu", _distribute)


def _distribute(original, module, device_ids=None, output_device=None, **kwargs):
    if all(parameter.device.type == "cpu" for parameter in module.parameters()):
        device_ids = output_device = None
    return original(module=module, device_ids=device_ids, output_device=output_device, **kwargs)


def end_with_parent() -> None:
    """End a process of fairseq's, of which each GPU has one, with the process that has spawned it.

    torch asks for SIGINT then, which a job in the background ignores: killed, it would leave its processes behind.
    """
    if multiprocessing.parent_process() is not None and signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        torch.multiprocessing._prctl_pr_set_pdeathsig(signal.SIGTERM)
