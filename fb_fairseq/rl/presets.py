"""Settings of environments, agents and training: the papers' (v3 §7.2, §7.3; v1 B.2, B.3), and small ones for a CPU."""

from typing import Dict, Tuple

from fb_fairseq.rl.a2c import TrainingOptions
from fb_fairseq.rl.agent import AgentOptions
from fb_fairseq.rl.envs import SIZES

# By environment: sizes, agent, training. The papers say nothing of how long mazes were trained for, and of the corridor only
# what Figure 3 shows.
MAZE = dict(layers=2, width=256, heads=4, span=200)
FULL: Dict[str, Tuple[dict, dict, dict]] = {
    "corridor": (
        {"length": 200, "shortest": 1},
        dict(layers=2, width=256, heads=4, span=100, previous_action=False),
        dict(frames=20_000_000, environments=128, block=100, optimizer="adam", lr=3e-4, entropy_cost=1e-2),
    ),
    "maze": (
        {},
        MAZE,
        dict(frames=500_000_000, environments=1024, block=100, optimizer="adam", lr=3e-4, entropy_cost=5e-4),
    ),
    "maze_easy": (
        {},
        MAZE,
        dict(frames=100_000_000, environments=128, block=100, optimizer="rmsprop", lr=3e-4, entropy_cost=5e-4),
    ),
    "water_maze": (
        {},
        dict(layers=2, width=64, heads=1, span=200),
        dict(frames=500_000_000, environments=64, block=200, optimizer="rmsprop", lr=3e-4, entropy_cost=1e-4),
    ),
}
FULL_LSTM: Dict[str, Tuple[dict, dict]] = {
    "maze": (dict(layers=3), {}),
    "maze_easy": (dict(layers=3), {}),
    "water_maze": ({}, dict(lr=4e-4)),
}
SMALL_AGENT = dict(layers=2, width=32, heads=2, span=100)
SMALL: Dict[str, Tuple[dict, dict, dict]] = {
    "corridor": (
        {"length": 30, "shortest": 1},
        dict(SMALL_AGENT, span=8, previous_action=False),
        dict(frames=3_000_000, environments=64, block=50, optimizer="adam", lr=2e-3, entropy_cost=1e-2),
    ),
    "maze": (
        {"size": 7, "limit": 100},
        SMALL_AGENT,
        dict(frames=3_000_000, environments=64, block=50, optimizer="adam", lr=1e-3, entropy_cost=1e-2),
    ),
    "maze_easy": (
        {"size": 7, "limit": 100},
        SMALL_AGENT,
        dict(frames=3_000_000, environments=64, block=50, optimizer="adam", lr=1e-3, entropy_cost=1e-2),
    ),
    "water_maze": (
        {"size": 7, "limit": 100},
        SMALL_AGENT,
        dict(frames=3_000_000, environments=64, block=50, optimizer="adam", lr=1e-3, entropy_cost=1e-2),
    ),
}


def preset(environment: str, agent: str, small: bool, own: dict) -> Tuple[TrainingOptions, AgentOptions]:
    """A setting with a user's own options in it, those that are not None.

    Raises:
        ValueError: the environment is unknown, or an option is out of range.
    """
    presets = SMALL if small else FULL
    if environment not in presets:
        raise ValueError(f"--environment {environment}: unknown, choose of {', '.join(presets)}")
    sizes, agent_options, training = presets[environment]
    more_agent, more_training = FULL_LSTM.get(environment, ({}, {})) if agent == "lstm" and not small else ({}, {})
    own = {name: value for name, value in own.items() if value is not None}
    own_sizes = {name: own.pop(name) for name in SIZES if name in own}
    of_agent = {name: own.pop(name) for name in list(own) if name in AgentOptions.__dataclass_fields__}
    return (
        TrainingOptions(environment=environment, sizes={**sizes, **own_sizes}, **{**training, **more_training, **own}),
        AgentOptions(agent=agent, **{**agent_options, **more_agent, **of_agent}),
    )
