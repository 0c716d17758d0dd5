"""Runs fairseq's commands: in this process where that serves (fairseq takes 5 s to import), else as a user would."""

import contextlib
import io
import json
import logging
import re
import socket
import sys
from unittest import mock

from tests.conftest import REPOSITORY

PLUGIN = str(REPOSITORY / "fb_fairseq")


def run(command: str, *arguments) -> str:
    """Run ``fairseq-<command> --user-dir …`` in this process. Returns its log; raises what it raises."""
    import importlib

    from fairseq import checkpoint_utils
    from fairseq_cli import train

    import fb_fairseq.models  # noqa: F401  --user-dir does this where the package is not imported yet
    import fb_fairseq.tasks  # noqa: F401
    from tests.cli.quick_composition import quick_composition

    module = importlib.import_module(f"fairseq_cli.{command.replace('-', '_')}")
    for function in (checkpoint_utils.save_checkpoint, train.should_stop_early):  # where fairseq keeps its best
        function.__dict__.pop("best", None)
    arguments = [str(argument) for argument in arguments]
    log = io.StringIO()
    handler = logging.StreamHandler(log)
    handler.setFormatter(logging.Formatter("%(asctime)s | %(levelname)s | %(name)s | %(message)s"))
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        with mock.patch.object(sys, "argv", [f"fairseq-{command}", *arguments, "--user-dir", PLUGIN]):
            with contextlib.redirect_stdout(log), quick_composition():
                module.cli_main()
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    return log.getvalue()


def preprocess(folder, splits=("train", "valid", "test"), **changes):
    """Binarise a folder's files of these splits. Returns the folder of the data."""
    values = {
        "destdir": folder / "bin",
        **{f"{split}pref": folder / split for split in splits},
        "workers": 1,
        **changes,
    }
    run("preprocess", *options(values))
    return values["destdir"]


def free_port() -> int:
    """A port of this machine that no program listens at."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def options(values: dict) -> list:
    """Command line of ``{"decoder_layers": 2, "cpu": True, …}``; False and None are left out."""
    line = []
    for name, value in values.items():
        if value is True:
            line.append(f"--{name.replace('_', '-')}")
        elif value is not False and value is not None:
            line += [f"--{name.replace('_', '-')}", str(value)]
    return line


TINY_MODEL = dict(
    arch="feedback_transformer_lm",
    decoder_layers=2,
    decoder_embed_dim=16,
    decoder_ffn_embed_dim=24,
    decoder_attention_heads=2,
    decoder_normalize_before=True,
    attention_span=10,
)
TRAINING = dict(
    task="streaming_lm",
    tokens_per_sample=7,
    batch_size=4,
    valid_streams=3,
    criterion="lm_loss",
    optimizer="adam",
    lr=0.01,
    clip_norm=1.0,
    cpu=True,
    log_format="json",
    log_interval=5,
    num_workers=0,
    ignore_unused_valid_subsets=True,
)
# Of the options above, those that an LSTM does not have.
NO_LAYERS_OF_A_TRANSFORMER = dict.fromkeys(
    ("decoder_ffn_embed_dim", "decoder_attention_heads", "attention_span", "decoder_normalize_before")
)
# What lets a run start from another's checkpoint with --restore-file.
RESETS = dict.fromkeys(("reset_optimizer", "reset_meters", "reset_dataloader", "reset_lr_scheduler"), True)


def train(data, save_dir, **changes) -> str:
    """Train a tiny model in this process."""
    return run("train", *training_arguments(data, save_dir, **changes))


def training_arguments(data, save_dir, **changes) -> list:
    """The command line with which ``train`` trains, without ``--user-dir``."""
    values = {**TINY_MODEL, **TRAINING, **changes}
    if values["arch"] == "all_attention_lm":  # it has persistent vectors in place of a feed-forward sublayer
        values.setdefault("persistent_memory_size", values.pop("decoder_ffn_embed_dim"))
    return [data, "--save-dir", save_dir, *options(values)]


def json_logs(log: str, tag: str) -> list:
    """The values logged under a tag with ``--log-format json``."""
    return [json.loads(found) for found in re.findall(rf"\| {tag} \| (\{{.*\}})", log)]


DISTRIBUTED = ["--distributed-backend", "gloo", "--user-dir", PLUGIN, "--ddp-backend"]


def start_two_processes(commands, data, save_dir, backend="legacy_ddp", **changes) -> list:
    """Start to train a tiny model in two processes, in the environment that torchrun gives them."""
    job = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    arguments = [*training_arguments(data, save_dir, **changes), *DISTRIBUTED, backend]
    return [
        commands.start(
            "fairseq-train",
            *arguments,
            printed=save_dir.with_name(f"{save_dir.name}.log{rank}"),
            environment={**job, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]


def train_in_two_processes(commands, data, save_dir, **changes) -> str:
    """Train a tiny model in two processes. Returns the first one's log."""
    processes = start_two_processes(commands, data, save_dir, **changes)
    for process in processes:
        assert process.wait() == 0, process.lines()[-20:]
    return "\n".join(processes[0].lines())
