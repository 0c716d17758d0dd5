"""Presets of environments, agents and training: the papers' (v3 §7.2, §7.3; v1 B.2, B.3), and small ones for a CPU."""

from collections.abc import Collection
from inspect import signature

from fb_fairseq.papers.rl.options import SIZES, AgentOptions, TrainingOptions

# A preset has options of the environment's size, of ``AgentOptions`` and of ``TrainingOptions``. The papers do not say
# how long agents were trained in the mazes; for the corridor there is only the curve of Figure 3. Previous actions are
# not among the observations that they list.
PAPERS = dict(layers=2, width=256, heads=4, span=200, previous_action=False, block=100, optimizer="adam", lr=3e-4)
FULL = {
    "corridor": dict(PAPERS, length=200, shortest=1, span=100, frames=20_000_000, environments=128, entropy_cost=1e-2),
    "maze": dict(PAPERS, frames=500_000_000, environments=1024, entropy_cost=5e-4),
    "maze_easy": dict(PAPERS, frames=100_000_000, environments=128, optimizer="rmsprop", entropy_cost=5e-4),
    "water_maze": dict(
        PAPERS,
        width=64,
        heads=1,
        frames=500_000_000,
        environments=64,
        block=200,
        optimizer="rmsprop",
        entropy_cost=1e-4,
    ),
}
# What LSTMs have instead.
FULL_LSTM = {"maze": dict(layers=3), "maze_easy": dict(layers=3), "water_maze": dict(lr=4e-4)}
CPU = dict(layers=2, width=32, heads=2, frames=3_000_000, environments=64, block=50, optimizer="adam", lr=1e-3)
SMALL_MAZE = dict(CPU, size=7, limit=100, span=100, entropy_cost=1e-2)
SMALL = {
    "corridor": dict(CPU, length=30, shortest=1, span=8, previous_action=False, entropy_cost=1e-2),
    "maze": SMALL_MAZE,
    "maze_easy": SMALL_MAZE,
    "water_maze": SMALL_MAZE,
}


def preset_options(
    environment: str, agent: str, small: bool, overrides: dict[str, object]
) -> tuple[TrainingOptions, AgentOptions]:
    """The preset of an environment and agent, with some options overridden.

    Args:
        environment: one of ``ENVIRONMENTS``.
        agent: one of ``AGENTS``.
        small: whether to take ``SMALL``, or the papers' settings.
        overrides: values by name; those that are None, or not options of the environment's size, the agent or training,
            are ignored.
    """
    presets = SMALL if small else FULL
    values = dict(presets.get(environment, {}))  # (``TrainingOptions`` refuses unknown names)
    if agent == "lstm" and not small:
        values.update(FULL_LSTM.get(environment, {}))
    values.update({name: value for name, value in overrides.items() if value is not None})
    values.update(environment=environment, agent=agent)

    def of(known: Collection[str]) -> dict:
        return {name: value for name, value in values.items() if name in known}

    training = TrainingOptions(**of(signature(TrainingOptions).parameters), sizes=of(SIZES))
    return training, AgentOptions(**of(signature(AgentOptions).parameters))
