"""The environments: episodes checked by hand, and properties checked independently."""

import numpy as np
import pytest

from fb_fairseq.errors import UserError
from fb_fairseq.papers.rl.envs import ENVS, make_env
from fb_fairseq.papers.rl.envs.maze import generate_maze

MAZE = {"size": 7, "limit": 40}
SIZES = {"corridor": {"length": 6}, "maze": MAZE, "maze_easy": MAZE, "water_maze": {"size": 5, "limit": 30}}


@pytest.mark.parametrize("name", ENVS)
def test_seeds_and_restarts(name):
    """The same seed gives the same episodes; a restored state continues identically; pictures show one agent."""

    def run(seed, steps, state=None):
        env = make_env(name, 5, SIZES[name])
        env.rng = np.random.default_rng(seed)
        env.reset(np.arange(5))
        if state is not None:
            env.load_state_dict(state)
        actions, seen = np.random.default_rng(7).integers(len(env.action_names), size=(60, 5)), []
        for action in actions[60 - steps :]:
            rewards, ended = env.step(action)
            env.reset(np.flatnonzero(ended))
            assert (env.steps[ended] == 0).all() and env.render_image(4).dtype == np.uint8
            observation = env.observe()
            assert (observation >= 0).all() and (observation < env.observation_sizes).all()
            seen.append(np.concatenate([observation.ravel(), rewards, ended]))
            if len(seen) == 30:
                halfway = env.state_dict()
        return seen, halfway

    first, halfway = run(3, 60)
    again, _ = run(3, 60)
    other, _ = run(4, 60)
    assert all((a == b).all() for a, b in zip(first, again))
    assert any((a != b).any() for a, b in zip(first, other))
    resumed, _ = run(9, 30, halfway)
    assert all((a == b).all() for a, b in zip(first[30:], resumed))


def start(name, **sizes):
    env = ENVS[name](1, **sizes)
    env.rng = np.random.default_rng(5)
    env.reset(np.array([0]))
    return env


def act(env, action):
    return tuple(value[0].item() for value in env.step(np.array([action])))


@pytest.mark.parametrize("right", [True, False])
def test_corridor_by_hand(right):
    env = start("corridor", length=3)
    colour = env.observe()[0, 0]
    assert act(env, 1 + colour) == (0, False), "there is no door here"
    seen = []
    for _ in range(3):
        assert act(env, 0) == (0, False)
        seen.append(env.observe()[0, 0])
    assert seen == [2, 2, 3]
    assert act(env, 0) == (0, False) and env.observe()[0, 0] == 3, "the corridor ends here"
    assert act(env, 1 + (colour if right else 1 - colour)) == (float(right), True)


def test_corridor_ends():
    env = start("corridor", length=3)
    for _ in range(11):
        assert act(env, 1) == (0, False)
    assert act(env, 1) == (0, True)


@pytest.mark.parametrize("seed", range(20))
def test_mazes(seed):
    """All free cells are connected, and each has two free neighbours or more."""
    maze = generate_maze(np.random.default_rng(seed), 9)
    free = {tuple(cell) for cell in np.argwhere(maze == 0)}
    assert len(free) >= 25 + 24, "a spanning tree of the rooms"
    neighbours = {(r, c): {(r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)} & free for r, c in free}
    assert min(map(len, neighbours.values())) >= 2
    reached, todo = set(), [next(iter(free))]
    while todo:
        cell = todo.pop()
        if cell not in reached:
            reached.add(cell)
            todo += neighbours[cell]
    assert reached == free


def test_maze_by_hand():
    env = start("maze", size=5)
    cells = np.ones((7, 7), np.int64)
    cells[1:6, 1:6] = [[0, 0, 0, 0, 5], [0, 1, 1, 1, 0], [0, 1, 2, 3, 0], [0, 1, 1, 1, 0], [0, 0, 0, 0, 9]]
    env.cells[0], env.position[0], env.heading[0], env.target[0] = cells, (1, 3), 1, 3
    seen = env.observe()[0]
    # The agent faces right, along the passage; the outer wall is on its left, a wall on its right.
    assert seen[:9].reshape(3, 3).tolist() == [[1, 0, 1], [1, 0, 1], [1, 0, 1]] and seen[9] == 3
    assert act(env, 2)[0] == 0 and env.heading[0] == 2  # right: down
    assert env.observe()[0, :9].reshape(3, 3).tolist() == [[1, 1, 1], [0, 0, 0], [1, 1, 1]]
    act(env, 0)
    assert env.position[0].tolist() == [1, 3], "a wall"
    act(env, 1)
    act(env, 0)
    assert env.position[0].tolist() == [1, 4]
    seen = env.observe()[0]
    # An object ahead, and a passage to the right of it.
    assert seen[:9].reshape(3, 3).tolist() == [[1, 5, 0], [1, 0, 1], [1, 0, 1]]
    assert act(env, 0)[0] == 1, "colour 3 is cell 5"
    assert env.target[0] != 3
    env.target[0] = 0
    assert act(env, 0)[0] == 0, "a wall ahead, and the object here is not the target"


def test_easy_maze_by_hand():
    env = start("maze_easy", size=5)
    env.cells[0, 1:6, 1:6] = 0
    env.cells[0, 2, 3] = 4
    env.position[0], env.target[0] = (3, 3), 2
    assert env.observe()[0, :9].tolist() == [0, 4, 0, 0, 0, 0, 0, 0, 0]
    assert act(env, 0)[0] == 1 and env.position[0].tolist() == [2, 3]
    for action, position in (1, [2, 4]), (2, [3, 4]), (3, [3, 3]):
        act(env, action)
        assert env.position[0].tolist() == position


def test_water_maze_by_hand():
    env = start("water_maze", size=4)
    names = env.names[0].reshape(4, 4)
    assert sorted(names.ravel()) == list(range(16))
    env.position[0], env.goal[0] = (0, 0), (1, 2)
    assert env.observe()[0].tolist() == [names[0, 0], names[1, 2], 0]
    assert act(env, 0)[0] == 0 and env.position[0].tolist() == [0, 0], "the wall"
    act(env, 1)
    assert env.observe()[0].tolist() == [names[0, 1], names[1, 2], 1]
    act(env, 2)
    assert act(env, 1)[0] == 1
    assert env.position[0].tolist() != [1, 2] and env.goal[0].tolist() == [1, 2], "the agent is moved elsewhere"
    assert (env.names[0].reshape(4, 4) == names).all()


def test_many_water_mazes():
    """In each, the cells have names in an order of their own, and the agent is moved to any cell but the goal."""
    env = make_env("water_maze", 300, {"size": 3})
    env.rng = np.random.default_rng(5)
    env.reset(np.arange(300))
    assert (np.sort(env.names, 1) == np.arange(9)).all() and not (env.names[0] == env.names).all()
    env.goal[:] = (1, 1)
    env._teleport(np.arange(300))
    assert {*map(tuple, env.position.tolist())} == {(r, c) for r in range(3) for c in range(3)} - {(1, 1)}


def picture(env):
    """The image of the first episode: letters of its colours, a row a word."""
    letters = {(235, 235, 235): ".", (200, 40, 40): "r", (60, 170, 60): "g", (60, 90, 220): "b", (0, 0, 0): "@"}
    letters[(70, 70, 70)] = "#"
    image = env.render_image(0)
    colours = iter("ABCDEFGH")
    for row in image.tolist():
        for pixel in map(tuple, row):
            if pixel not in letters:
                letters[pixel] = next(colours)
    return " ".join("".join(letters[tuple(pixel)] for pixel in row) for row in image.tolist())


def test_images():
    """Corridor: the object at the start, the agent, two doors. Mazes: walls, objects, the agent, and below the colour
    to find. Water maze: the agent and the goal.
    """
    env = start("corridor", length=3)
    env.colour[0], env.end[0] = 1, 2
    act(env, 0)
    assert picture(env) == "g.b.. .r... ..g.."
    env.colour[0] = 0
    assert picture(env) == "b.b.. .r... ..g.."
    env = start("maze", size=5)
    env.cells[0, 1:6, 1:6] = [[0, 0, 0, 0, 5], [0, 1, 1, 1, 0], [0, 1, 2, 3, 0], [0, 1, 1, 1, 0], [0, 0, 0, 0, 9]]
    env.position[0], env.target[0] = (1, 3), 3
    assert picture(env) == "####### #..@.A# #.###.# #.#BC.# #.###.# #....D# ####### AAAAAAA"
    env = start("water_maze", size=3)
    env.position[0], env.goal[0] = (0, 1), (2, 2)
    assert picture(env) == ".r. ... ..g"


def test_episodes_end():
    for name in ("maze", "maze_easy", "water_maze"):
        env = start(name, limit=3)
        assert [act(env, 1)[1] for _ in range(3)] == [False, False, True]


LEAST = [("corridor", "length", 1), ("maze", "size", 5), ("maze", "limit", 1), ("water_maze", "size", 2)]


@pytest.mark.parametrize("name,option,least", [*LEAST, ("water_maze", "limit", 1)])
def test_smallest_sizes(name, option, least):
    start(name, **{option: least})
    with pytest.raises(UserError, match=f"--{option} {least - 1}: give {least} or more"):
        start(name, **{option: least - 1})


@pytest.mark.parametrize(
    "name,sizes,message",
    [
        ("corridor", {"size": 5}, "--size: not an option of --environment corridor"),
        ("maze", {"size": 8}, "--size 8: give an odd number"),
    ],
)
def test_bad_sizes(name, sizes, message):
    with pytest.raises(UserError, match=message):
        make_env(name, 2, sizes)
