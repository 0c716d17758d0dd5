"""``--help`` of fairseq's commands, recipes and scripts, and the page of options."""

import subprocess

import pytest

from tests.cli.fairseq_commands import PLUGIN
from tests.conftest import REPOSITORY

SCRIPTS = [str(path.relative_to(REPOSITORY)) for path in sorted(REPOSITORY.glob("examples/**/*.sh"))]
SCRIPTS.remove("examples/environment.sh")


def help_of(commands, command, *arguments):
    result = commands.run(command, "--help", "--user-dir", PLUGIN, *arguments)
    assert result.status == 0 and not result.errors, result.errors
    return "\n".join(result.out)


def test_training(commands):
    """Wherever --help stands: the options of all that is chosen, and fairseq's own."""
    text = help_of(
        commands,
        "fairseq-train",
        *("--task", "streaming_lm", "--arch", "feedback_transformer_lm_enwik8"),
        *("--criterion", "lm_loss", "--optimizer", "clipped_adagrad"),
    )
    assert "--valid-streams" in text and "--save-stream-memory {exact,bfloat16,float16,none}" in text
    assert "--memory-composition" in text and "--step-loop" in text and "resolved" not in text
    assert "--max-update" in text and "--save-dir" in text


@pytest.mark.parametrize(
    "command,arguments,expected",
    [
        (
            "fairseq-train",
            ["--arch", "feedback_decoder"],
            ["--memory-projections", "--encoder-layers", "--source-lang"],
        ),
        ("fairseq-train", [], ["--arch", "--task"]),
        ("fairseq-eval-lm", ["--task", "streaming_lm"], ["--valid-streams", "--path"]),
        ("fairseq-validate", ["--task", "streaming_lm"], ["--valid-streams"]),
        ("fairseq-generate", ["--task", "streaming_lm"], ["--sample-break-mode", "--beam"]),
        ("fairseq-interactive", ["--task", "streaming_lm"], ["--tokens-per-sample", "--sampling"]),
    ],
)
def test_other_commands(commands, command, arguments, expected):
    text = help_of(commands, command, *arguments)
    for words in expected:
        assert words in " ".join(text.split())
    assert "--quant-noise-pq" not in text, "what is refused is not offered"


def test_help_on_what_does_not_exist(commands):
    result = commands.run("fairseq-train", "--user-dir", PLUGIN, "--arch", "nosuch", "--help")
    (line,) = result.errors
    assert result.status == 2 and "invalid choice: 'nosuch'" in line


@pytest.mark.parametrize("script", [*SCRIPTS, "tests/run.sh"])
def test_scripts(script, tmp_path):
    """The comment at their top, which has a line to type; nothing is set up."""
    environment = {"PATH": "/usr/bin:/bin", "FB_FAIRSEQ_VENV": str(tmp_path / "none")}
    done = subprocess.run(
        ["bash", str(REPOSITORY / script), "--help"], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert f"bash {script}" in done.stdout and "#" not in done.stdout.splitlines()[0]
    assert not (tmp_path / "none").exists()
