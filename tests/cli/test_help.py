"""``--help`` of fairseq's commands, recipes and scripts, and the page of options."""

import subprocess

import pytest

from tests.cli.fairseq_commands import PLUGIN
from tests.conftest import REPOSITORY

SCRIPTS = [str(path.relative_to(REPOSITORY)) for path in sorted(REPOSITORY.glob("examples/**/*.sh"))]
SCRIPTS.remove("examples/environment.sh")


@pytest.mark.parametrize(
    "command,arguments,expected",
    [
        (
            "train",
            "--task streaming_lm --arch feedback_transformer_lm_enwik8 --criterion lm_loss --optimizer clipped_adagrad",
            ["--valid-streams", "--save-stream-memory {exact,bfloat16,float16,none}", "--memory-composition"]
            + ["--step-loop", "--adagrad-clip", "--max-update", "--save-dir"],
        ),
        ("train", "--arch feedback_decoder", ["--memory-projections", "--encoder-layers", "--source-lang"]),
        (
            "train",
            "",
            ["--task of fb_fairseq: streaming_lm ", "--criterion of fb_fairseq: lm_loss "]
            + ["--arch of fb_fairseq: feedback_transformer_lm, "],
        ),
        ("eval-lm", "--task streaming_lm", ["--valid-streams", "--path"]),
        ("validate", "--task streaming_lm", ["--valid-streams"]),
        ("generate", "--task streaming_lm", ["--sample-break-mode", "--beam"]),
        ("interactive", "--task streaming_lm", ["--tokens-per-sample", "--sampling"]),
    ],
)
def test_commands(commands, command, arguments, expected):
    """``--help`` lists fairseq's options and those of the chosen task, model and criterion."""
    result = commands.run(f"fairseq-{command}", "--help", "--user-dir", PLUGIN, *arguments.split())
    assert result.status == 0 and not result.errors, result.errors
    text = " ".join(" ".join(result.out).split())
    assert [words for words in expected if words not in text] == []
    ours = [line.split(" of fb_fairseq: ") for line in result.out if " of fb_fairseq: " in line]
    assert all(names for _, names in ours), "no empty lists"
    assert "--quant-noise-pq" not in text, "what is refused is not offered"
    assert "resolved" not in text


@pytest.mark.parametrize("script", [*SCRIPTS, "tests/run.sh"])
def test_scripts(script, tmp_path):
    """``--help`` prints the script's first comment, with a command to type, and sets nothing up."""
    environment = {"PATH": "/usr/bin:/bin", "FB_FAIRSEQ_VENV": str(tmp_path / "none")}
    done = subprocess.run(
        ["bash", str(REPOSITORY / script), "--help"], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert f"bash {script}" in done.stdout and "#" not in done.stdout.splitlines()[0]
    assert not (tmp_path / "none").exists()
