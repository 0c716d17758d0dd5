"""Data for whole commands: a made-up text, so that no file from outside is needed."""

import fcntl
import os
import random
from functools import partial

import pytest

from fb_fairseq.commands import preprocess_bytes
from tests.cli import parallel_text
from tests.cli.command_server import CommandServer
from tests.cli.fairseq_commands import NO_LAYERS_OF_A_TRANSFORMER, train
from tests.cli.odd_names import ODD_NAME
from tests.cli.words import write_word_data

TRANSFORMERS = ["feedback_transformer_lm", "relative_transformer_lm", "all_attention_lm"]
ARCHITECTURES = [*TRANSFORMERS, "streaming_lstm_lm"]


def made_up_text(length: int, seed: int) -> bytes:
    """Words of a small made-up language, with lines."""
    draw = random.Random(seed)
    words = ["".join(draw.choice("aeioubcdlmnst") for _ in range(draw.randint(2, 7))) for _ in range(60)]
    text = ""
    while len(text) < length:
        text += draw.choice(words) + draw.choice([" ", " ", " ", ".\n"])
    return text[:length].encode()


def write_byte_data(folder) -> None:
    """Binarised bytes: train 3000, valid 400 in two documents, valid1 150, test 301."""
    parts = {"train": [3000], "valid": [300, 98], "valid1": [149], "test": [300]}
    preprocess_bytes.binarise(
        {split: [made_up_text(size, seed + 1) for seed, size in enumerate(sizes)] for split, sizes in parts.items()},
        str(folder),
    )


@pytest.fixture(scope="session")
def commands():
    """Runs whole commands quickly, see ``CommandServer``."""
    with CommandServer() as server:
        yield server


@pytest.fixture(scope="session")
def made_once(tmp_path_factory):
    """Make a folder's files once for all processes of pytest-xdist: ``made_once(name, make)`` returns the folder."""
    folders = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folders = folders.parent

    def made(name, make):
        folder = folders / f"made-{name}"
        folder.mkdir(exist_ok=True)
        with open(folder / ".lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / ".made").exists():
                make(folder)
                (folder / ".made").touch()
        return folder

    return made


@pytest.fixture(scope="session")
def byte_data(made_once):
    """Folder of ``write_byte_data``."""
    return made_once("bytes", write_byte_data)


@pytest.fixture(scope="session")
def word_data(made_once):
    """Data of ``write_word_data``."""
    return made_once("words", write_word_data) / "bin"


@pytest.fixture(scope="session")
def parallel_data(made_once):
    """Data of ``parallel_text.preprocess``."""
    return made_once("parallel", parallel_text.preprocess) / "data"


@pytest.fixture(scope="session")
def language_models(byte_data, made_once):
    """A byte model's checkpoint for each architecture, trained a little."""
    options = dict(max_update=60, disable_validation=True, no_epoch_checkpoints=True)
    result = {}
    for arch in ARCHITECTURES:
        changes = NO_LAYERS_OF_A_TRANSFORMER if arch == "streaming_lstm_lm" else {}
        make = partial(train, byte_data, arch=arch, **options, **changes)
        result[arch] = made_once(arch, make) / "checkpoint_last.pt"
    return result


@pytest.fixture(scope="session")
def translation_models(parallel_data, made_once):
    """A folder with the checkpoints and logs of a Feedback model, trained with BLEU on the validation set, and of a
    vanilla one."""
    bleu = dict(
        eval_bleu=True,
        eval_bleu_args='{"beam": 2}',
        best_checkpoint_metric="bleu",
        maximize_best_checkpoint_metric=True,
    )

    def make(folder):
        for name, changes in {
            "feedback": dict(max_update=150, update_freq=2, validate_interval=5, **bleu),
            "vanilla": dict(arch="transformer", max_update=100, disable_validation=True),
        }.items():
            log = parallel_text.train(parallel_data, folder / name, **changes)
            (folder / name / "log").write_text(log)

    return made_once("translation", make)


@pytest.fixture
def odd_folder(tmp_path, monkeypatch):
    """The working folder of the test, whose name is hard to handle."""
    folder = tmp_path / ODD_NAME
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def recipe(commands, odd_folder):
    """Runs a recipe in ``odd_folder`` with the programs of the command server; returns what it printed. It has to
    succeed, unless ``fails``."""
    environment = {"FB_FAIRSEQ_VENV": str(commands.folder)}

    def run(name, *arguments, fails=False):
        done = commands.run("fb-fairseq", "recipe", name, *arguments, environment=environment)
        assert (done.status != 0) == fails, "\n".join(done.out[-30:] + done.errors[-5:])
        return "\n".join(done.out + done.errors)

    return run
