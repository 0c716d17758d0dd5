"""The environments, simulated in numpy, B in parallel: corridor.py, maze.py, water_maze.py. ``ENVS`` has their names;
base.py is their interface::

    env = make_env("maze", num_envs=64, sizes={"size": 9})
    env.rng = numpy.random.default_rng(1)
    env.reset(numpy.arange(64))
    observations = env.observe()
    rewards, ended = env.step(actions)
"""

from inspect import signature

from fb_fairseq.errors import UserError, flag
from fb_fairseq.papers.rl.envs.base import BatchedEnv
from fb_fairseq.papers.rl.envs.corridor import Corridor
from fb_fairseq.papers.rl.envs.maze import Maze, MazeEasy
from fb_fairseq.papers.rl.envs.water_maze import WaterMaze

ENVS: dict[str, type[BatchedEnv]] = {"corridor": Corridor, "maze": Maze, "maze_easy": MazeEasy, "water_maze": WaterMaze}


def make_env(name: str, num_envs: int, sizes: dict[str, int] | None = None) -> BatchedEnv:
    """Environments that run in parallel; before the first step, set ``rng`` and ``reset`` all.

    Args:
        name: one of ``ENVS``.
        num_envs: their number B.
        sizes: arguments of the class, such as ``length``; its defaults where omitted.
    """
    for option in sizes or {}:
        if option not in signature(ENVS[name]).parameters:
            raise UserError(f"{flag(option)}: not an option of --environment {name}; leave it out")
    return ENVS[name](num_envs, **(sizes or {}))
