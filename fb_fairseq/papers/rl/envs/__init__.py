"""The environments, simulated in numpy, B in parallel: corridor.py, maze.py, water_maze.py. ``ENVS`` has their names;
base.py is their interface, gymnasium_api.py that of gymnasium."""

from fb_fairseq.papers.rl.envs.base import BatchedEnv
from fb_fairseq.papers.rl.envs.corridor import Corridor
from fb_fairseq.papers.rl.envs.maze import Maze, MazeEasy
from fb_fairseq.papers.rl.envs.water_maze import WaterMaze

ENVS: dict[str, type[BatchedEnv]] = {"corridor": Corridor, "maze": Maze, "maze_easy": MazeEasy, "water_maze": WaterMaze}
