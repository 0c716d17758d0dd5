"""fb-fairseq generate: plain text, printed as it is generated."""

import logging

import pytest

from fb_fairseq.commands import generate
from tests.cli.conftest import write_byte_data
from tests.cli.fairseq_commands import run, train

pytestmark = pytest.mark.not_fast


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("generate")
    write_byte_data(folder / "data")
    train(folder / "data", folder / "ck", max_update=30, disable_validation=True)
    return folder


def text_of(capsys, folder, *arguments):
    generate.main(["--path", str(folder / "ck/checkpoint_last.pt"), "--cpu", *map(str, arguments)])
    assert logging.getLogger("fairseq").isEnabledFor(logging.WARNING) and logging.root.manager.disable == 0
    return capsys.readouterr().out


def test_greedy_equals_fairseq(capsys, folder):
    text = text_of(capsys, folder, "--prompt", r"a b\n\x63", "--length", 20, "--temperature", 0)
    assert text.startswith("a b\nc") and text.endswith("\n") and len(text.encode()) <= 5 + 20 + 1
    for option in (["--sampling-topk", 1], ["--temperature", 1e-320]):
        assert text_of(capsys, folder, "--prompt", r"a b\n\x63", "--length", 20, *option) == text
    (folder / "text").write_text("a b\nc")
    assert text_of(capsys, folder, "--prompt-file", folder / "text", "--length", 20, "--temperature", 0) == text
    (folder / "prompt").write_text("a b\\nc\n")
    arguments = ["--input", folder / "prompt", "--beam", 1, "--max-len-b", 5 + 20, "--cpu"]
    out = run(
        "interactive", folder / "data", "--task", "streaming_lm", "--path", folder / "ck/checkpoint_last.pt", *arguments
    )
    (line,) = [line for line in out.splitlines() if line.startswith("D-0")]
    assert line.split("\t")[2].replace("\\n", "\n") in text


def test_seeds(capsys, folder):
    same = ["--prompt", "a", "--length", 30, "--sampling-topk", 0]
    texts = [text_of(capsys, folder, *same, "--seed", seed) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
