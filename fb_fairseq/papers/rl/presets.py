"""Presets of environments, agents and training: the papers' (v3 §7.2, §7.3; v1 B.2, B.3), and small ones for a CPU."""

from dataclasses import fields
from typing import NamedTuple

from fb_fairseq.papers.rl.envs import SIZE_OPTIONS
from fb_fairseq.papers.rl.options import AgentOptions, TrainingOptions, check_choice


class Preset(NamedTuple):
    """Size options of the environment, ``AgentOptions`` and ``TrainingOptions``, each as keyword arguments."""

    sizes: dict[str, int]
    agent: dict
    training: dict


# The papers do not say how long agents were trained in the mazes; for the corridor there is only the curve of Figure 3.
# Previous actions are not among the observations that they list.
FULL_MAZE_AGENT = dict(layers=2, width=256, heads=4, span=200, previous_action=False)
FULL: dict[str, Preset] = {
    "corridor": Preset(
        {"length": 200, "shortest": 1},
        dict(layers=2, width=256, heads=4, span=100, previous_action=False),
        dict(frames=20_000_000, environments=128, block=100, optimizer="adam", lr=3e-4, entropy_cost=1e-2),
    ),
    "maze": Preset(
        {},
        FULL_MAZE_AGENT,
        dict(frames=500_000_000, environments=1024, block=100, optimizer="adam", lr=3e-4, entropy_cost=5e-4),
    ),
    "maze_easy": Preset(
        {},
        FULL_MAZE_AGENT,
        dict(frames=100_000_000, environments=128, block=100, optimizer="rmsprop", lr=3e-4, entropy_cost=5e-4),
    ),
    "water_maze": Preset(
        {},
        dict(layers=2, width=64, heads=1, span=200, previous_action=False),
        dict(frames=500_000_000, environments=64, block=200, optimizer="rmsprop", lr=3e-4, entropy_cost=1e-4),
    ),
}
FULL_LSTM: dict[str, Preset] = {  # what differs from FULL for an LSTM
    "corridor": Preset({}, {}, {}),
    "maze": Preset({}, dict(layers=3), {}),
    "maze_easy": Preset({}, dict(layers=3), {}),
    "water_maze": Preset({}, {}, dict(lr=4e-4)),
}
SMALL_AGENT = dict(layers=2, width=32, heads=2, span=100)
SMALL_MAZE = Preset(
    {"size": 7, "limit": 100},
    SMALL_AGENT,
    dict(frames=3_000_000, environments=64, block=50, optimizer="adam", lr=1e-3, entropy_cost=1e-2),
)
SMALL: dict[str, Preset] = {
    "corridor": Preset(
        {"length": 30, "shortest": 1},
        dict(SMALL_AGENT, span=8, previous_action=False),
        dict(frames=3_000_000, environments=64, block=50, optimizer="adam", lr=1e-3, entropy_cost=1e-2),
    ),
    "maze": SMALL_MAZE,
    "maze_easy": SMALL_MAZE,
    "water_maze": SMALL_MAZE,
}

AGENT_FIELDS = {field.name for field in fields(AgentOptions)} - {"agent"}
TRAINING_FIELDS = {field.name for field in fields(TrainingOptions)} - {"environment", "sizes"}


def preset_options(
    environment: str, agent: str, small: bool, overrides: dict[str, object]
) -> tuple[TrainingOptions, AgentOptions]:
    """The preset of an environment and agent, with some options overridden; those that are None, or not options of the
    environment's size, the agent or training, are ignored."""
    presets = SMALL if small else FULL
    check_choice("environment", environment, list(presets))
    preset = presets[environment]
    if agent == "lstm" and not small:
        preset = Preset(*({**ours, **lstm} for ours, lstm in zip(preset, FULL_LSTM[environment])))
    given = {name: value for name, value in overrides.items() if value is not None}
    sizes, agent_options, training = (
        {**defaults, **{name: value for name, value in given.items() if name in names}}
        for defaults, names in zip(preset, (SIZE_OPTIONS, AGENT_FIELDS, TRAINING_FIELDS))
    )
    options = TrainingOptions(environment=environment, sizes=sizes, **training)
    return options, AgentOptions(agent=agent, **agent_options)
