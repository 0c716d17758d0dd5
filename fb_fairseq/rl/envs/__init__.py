"""The tasks, N episodes side by side in numpy. ``WORLDS`` names them."""

from fb_fairseq.rl.envs.corridor import Corridor
from fb_fairseq.rl.envs.maze import Maze, MazeEasy
from fb_fairseq.rl.envs.water_maze import WaterMaze

SIZES = ("length", "shortest", "size", "limit")  # arguments that worlds have
WORLDS = {"corridor": Corridor, "maze": Maze, "maze_easy": MazeEasy, "water_maze": WaterMaze}
