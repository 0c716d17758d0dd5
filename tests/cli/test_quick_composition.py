"""fairseq's configuration in tests is the one that hydra composes."""

import pytest
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

import fb_fairseq.models  # noqa: F401  registers the models
import fb_fairseq.tasks  # noqa: F401  and the task
from tests.cli.fairseq_commands import training_arguments
from tests.cli.quick_composition import quick_composition

COMMANDS = {
    "training": training_arguments("data", "out", adam_betas="(0.5, 0.9)", update_freq="1,2"),
    "training of fairseq's own": ["data", "--arch", "transformer_lm", "--task", "language_modeling", "--lr", "1,2"],
    "generation": ["data", "--path", "a:b", "--task", "streaming_lm", "--model-overrides", "{'attention_span': 4}"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_equals_hydras(name):
    def compose():
        parser = getattr(options, f"get_{name.split()[0]}_parser")()
        return convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, list(map(str, COMMANDS[name]))))

    expected = compose()
    with quick_composition():
        for _ in range(2):
            found = compose()
            assert found == expected and str(found) == str(expected)
            found.task.data = "changed"
            found.common.seed = 9  # the next one has a copy of its own
