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


def between(text, start, end):
    return text[text.index(start) : text.index(end)]


def test_training(commands):
    """Wherever --help stands: the options of all that is chosen, with their defaults, before fairseq's own."""
    text = help_of(
        commands,
        "fairseq-train",
        *("--task", "streaming_lm", "--arch", "feedback_transformer_lm_enwik8"),
        *("--criterion", "lm_loss", "--optimizer", "clipped_adagrad"),
    )
    task = between(text, "--task streaming_lm:", "--arch feedback_transformer_lm_enwik8:")
    arch = between(text, "--arch feedback_transformer_lm_enwik8:", "--optimizer clipped_adagrad:")
    assert "--valid-streams" in task and "--save-stream-memory {exact,bfloat16,float16,none}" in task
    assert "--memory-composition" in arch and "--step-loop" in arch and "resolved" not in arch
    flat = " ".join(arch.split())
    assert "number of layers (default: 12)" in flat and "across blocks (default: 8192)" in flat, "this architecture's"
    assert "dropout of attention weights (default: 0.5)" in flat
    assert "(default: 0.03)" in between(text, "--optimizer clipped_adagrad:", "--lr-scheduler fixed:")
    assert text.index("--optimizer clipped_adagrad:") < text.index("--max-update") and "--save-dir" in text
    assert "this plugin's: all_attention_lm, " in " ".join(text.split())
    assert len(text.splitlines()) < 700


@pytest.mark.parametrize(
    "command,arguments,expected",
    [
        (
            "fairseq-train",
            ["--arch", "feedback_decoder"],
            ["--memory-projections", "--encoder-layers", "--source-lang"],
        ),
        ("fairseq-train", [], ["--arch", "this plugin's: streaming_lm"]),
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
