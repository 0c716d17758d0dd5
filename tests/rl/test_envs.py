"""The worlds, against replays by hand and by independent rules."""

import numpy as np
import pytest

pytest.importorskip("gymnasium")
import gymnasium  # noqa: E402
from gymnasium.utils.env_checker import check_env  # noqa: E402

from fb_fairseq.rl.envs import WORLDS  # noqa: E402
from fb_fairseq.rl.envs.gymnasium_api import NAMES  # noqa: E402
from fb_fairseq.rl.envs.maze import kruskal_maze  # noqa: E402

SIZES = {
    "corridor": {"length": 6},
    "maze": {"size": 7, "limit": 40},
    "maze_easy": {"size": 7, "limit": 40},
    "water_maze": {"size": 5, "limit": 30},
}


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.filterwarnings("ignore:.*use `gymnasium.vector.VectorEnv`.*")
def test_gymnasium_checks(name):
    for mode in ("rgb_array", "ansi"):
        check_env(gymnasium.make(NAMES[name], render_mode=mode).unwrapped)
    environments = gymnasium.make_vec(NAMES[name], num_envs=3, render_mode="ansi")
    environments.reset(seed=1)
    texts = environments.render()
    assert len(texts) == 3 and all(sum(text.count(agent) for agent in "@^>v<") == 1 for text in texts)


@pytest.mark.parametrize("name", WORLDS)
def test_seeds_and_restarts(name):
    """The same seed gives the same episodes; all that is seen is in the space; a state goes on as it was."""

    def run(seed, steps, state=None):
        environments = gymnasium.make_vec(
            NAMES[name], num_envs=5, vectorization_mode="vector_entry_point", **SIZES[name]
        )
        seen = [environments.reset(seed=seed)[0]]
        if state is not None:
            environments.unwrapped.world.load_state(state)
        environments.action_space.seed(7)
        for action in [environments.action_space.sample() for _ in range(60)][60 - steps :]:
            observation, rewards, terminated, truncated, infos = environments.step(action)
            assert environments.observation_space.contains(observation)
            ended = terminated | truncated
            assert ended.any() == ("final_obs" in infos)
            if ended.any():
                assert (infos["_final_obs"] == ended).all()
                same = (infos["final_obs"] == observation).all(1)
                assert same[~ended].all()
                assert (environments.unwrapped.world.steps[ended] == 0).all()
            seen.append(np.concatenate([observation.ravel(), rewards, ended]))
            if len(seen) == 31:
                halfway = environments.unwrapped.world.state()
        return seen[1:], halfway if steps > 30 else None

    first, halfway = run(3, 60)
    again, _ = run(3, 60)
    other, _ = run(4, 60)
    assert all((a == b).all() for a, b in zip(first, again))
    assert any((a != b).any() for a, b in zip(first, other))
    resumed, _ = run(9, 30, halfway)
    assert all((a == b).all() for a, b in zip(first[30:], resumed))


def start(name, **sizes):
    world = WORLDS[name](1, **sizes)
    world.rng = np.random.default_rng(5)
    world.start(np.array([0]))
    return world


def act(world, action):
    return tuple(value[0].item() for value in world.move(np.array([action])))


@pytest.mark.parametrize("right", [True, False])
def test_corridor_by_hand(right):
    world = start("corridor", length=3)
    colour = world.observe()[0, 0]
    assert act(world, 1 + colour) == (0, False, False), "there is no door yet"
    seen = []
    for _ in range(3):
        assert act(world, 0) == (0, False, False)
        seen.append(world.observe()[0, 0])
    assert seen == [2, 2, 3]
    assert act(world, 0) == (0, False, False) and world.observe()[0, 0] == 3, "it ends there"
    assert act(world, 1 + (colour if right else 1 - colour)) == (float(right), True, False)


def test_corridor_ends():
    world = start("corridor", length=3)
    for _ in range(11):
        assert act(world, 1) == (0, False, False)
    assert act(world, 1) == (0, False, True)


@pytest.mark.parametrize("seed", range(20))
def test_mazes(seed):
    """All free cells are connected, and each has two free neighbours or more."""
    maze = kruskal_maze(np.random.default_rng(seed), 9)
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


def test_mazes_differ():
    assert len({kruskal_maze(np.random.default_rng(seed), 5).tobytes() for seed in range(30)}) > 5


def test_maze_by_hand():
    world = start("maze", size=5)
    cells = np.ones((7, 7), np.int64)
    cells[1:6, 1:6] = [[0, 0, 0, 0, 5], [0, 1, 1, 1, 0], [0, 1, 2, 3, 0], [0, 1, 1, 1, 0], [0, 0, 0, 0, 9]]
    world.cells[0], world.position[0], world.heading[0], world.target[0] = cells, (1, 3), 1, 3
    seen = world.observe()[0]
    # It looks to the right: there is the way, to its left the wall around, to its right a wall.
    assert seen[:9].reshape(3, 3).tolist() == [[1, 0, 1], [1, 0, 1], [1, 0, 1]] and seen[9] == 3
    assert act(world, 2)[0] == 0 and world.heading[0] == 2  # right: down
    assert world.observe()[0, :9].reshape(3, 3).tolist() == [[1, 1, 1], [0, 0, 0], [1, 1, 1]]
    act(world, 0)
    assert world.position[0].tolist() == [1, 3], "a wall"
    act(world, 1)
    act(world, 0)
    assert world.position[0].tolist() == [1, 4]
    seen = world.observe()[0]
    assert seen[:9].reshape(3, 3).tolist() == [[1, 5, 0], [1, 0, 1], [1, 0, 1]], (
        "an object ahead, and a way to its right"
    )
    assert act(world, 0)[0] == 1, "colour 3 is cell 5"
    assert world.target[0] != 3
    world.target[0] = 0
    assert act(world, 0)[0] == 0, "it stays before the wall, on an object that is no target"


def test_easy_maze_by_hand():
    world = start("maze_easy", size=5)
    world.cells[0, 1:6, 1:6] = 0
    world.cells[0, 2, 3] = 4
    world.position[0], world.target[0] = (3, 3), 2
    assert world.observe()[0, :9].tolist() == [0, 4, 0, 0, 0, 0, 0, 0, 0]
    assert act(world, 0)[0] == 1 and world.position[0].tolist() == [2, 3]
    for action, there in (1, [2, 4]), (2, [3, 4]), (3, [3, 3]):
        act(world, action)
        assert world.position[0].tolist() == there


def test_water_maze_by_hand():
    world = start("water_maze", size=4)
    names = world.names[0].reshape(4, 4)
    assert sorted(names.ravel()) == list(range(16))
    world.position[0], world.goal[0] = (0, 0), (1, 2)
    assert world.observe()[0].tolist() == [names[0, 0], names[1, 2], 0]
    assert act(world, 0)[0] == 0 and world.position[0].tolist() == [0, 0], "the wall"
    act(world, 1)
    assert world.observe()[0].tolist() == [names[0, 1], names[1, 2], 1]
    act(world, 2)
    assert act(world, 1)[0] == 1
    assert world.position[0].tolist() != [1, 2] and world.goal[0].tolist() == [1, 2], "it is put elsewhere"
    assert (world.names[0].reshape(4, 4) == names).all()


def test_episodes_end():
    for name in ("maze", "maze_easy", "water_maze"):
        world = start(name, limit=3)
        assert [act(world, 1)[1:] for _ in range(3)] == [(False, False), (False, False), (False, True)]


@pytest.mark.parametrize(
    "name,arguments,message",
    [
        ("corridor", {"length": 0}, "--length 0: give 1 or more"),
        ("maze", {"size": 8}, "--size 8: give an odd number"),
        ("maze", {"size": 3}, "--size 3: give 5 or more"),
        ("water_maze", {"limit": 0}, "--limit 0: give 1 or more"),
        ("water_maze", {"render_mode": "spam"}, "render_mode spam: unknown, give one of rgb_array, ansi"),
    ],
)
def test_bad_sizes(name, arguments, message):
    for make in gymnasium.make, gymnasium.make_vec:
        with pytest.raises(ValueError, match=message):
            make(NAMES[name], **arguments)


def test_bad_actions():
    environments = gymnasium.make_vec(NAMES["maze"], num_envs=2)
    environments.reset(seed=1)
    with pytest.raises(ValueError, match=r"action 3: give 0 to 2 \(forward, turn left, turn right\)"):
        environments.step(np.array([0, 3]))
    with pytest.raises(ValueError, match="give 2 whole numbers"):
        environments.step(np.array([0]))
    with pytest.raises(ValueError, match="action 9: give 0 to 3"):
        one = gymnasium.make(NAMES["maze_easy"]).unwrapped
        one.reset(seed=1)
        one.step(9)
