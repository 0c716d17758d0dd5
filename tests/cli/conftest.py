"""Data for whole commands: a made-up text, so that no file from outside is needed."""

import random

import pytest

from fb_fairseq.commands import preprocess_bytes
from tests.cli.command_server import CommandServer
from tests.cli.words import write_word_data


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
def byte_data(tmp_path_factory):
    """Folder of ``write_byte_data``."""
    folder = tmp_path_factory.mktemp("bytes")
    write_byte_data(folder)
    return folder


@pytest.fixture(scope="session")
def word_data(tmp_path_factory):
    """Data of ``write_word_data``."""
    folder = tmp_path_factory.mktemp("words")
    write_word_data(folder)
    return folder / "bin"
