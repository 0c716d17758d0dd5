"""The environments: episodes checked by hand, and properties checked independently."""

import numpy as np
import pytest

pytest.importorskip("gymnasium")
import gymnasium  # noqa: E402
from gymnasium.utils.env_checker import check_env  # noqa: E402

from fb_fairseq.papers.rl.envs import ENVS  # noqa: E402
from fb_fairseq.papers.rl.envs.gymnasium_api import ENV_IDS  # noqa: E402
from fb_fairseq.papers.rl.envs.maze import generate_maze  # noqa: E402

MAZE = {"size": 7, "limit": 40}
SIZES = {"corridor": {"length": 6}, "maze": MAZE, "maze_easy": MAZE, "water_maze": {"size": 5, "limit": 30}}


@pytest.mark.parametrize("name", ENVS)
@pytest.mark.filterwarnings("ignore:.*use `gymnasium.vector.VectorEnv`.*")
def test_gymnasium_checks(name):
    for mode in ("rgb_array", "ansi"):
        check_env(gymnasium.make(ENV_IDS[name], render_mode=mode).unwrapped)
    environments = gymnasium.make_vec(ENV_IDS[name], num_envs=3, render_mode="ansi")
    environments.reset(seed=1)
    texts = environments.render()
    assert len(texts) == 3 and all(sum(text.count(agent) for agent in "@^>v<") == 1 for text in texts)


@pytest.mark.parametrize("name", ENVS)
def test_seeds_and_restarts(name):
    """The same seed gives the same episodes; observations are in the space; a restored state continues identically."""

    def run(seed, steps, state=None):
        options = dict(num_envs=5, vectorization_mode="vector_entry_point", **SIZES[name])
        environments = gymnasium.make_vec(ENV_IDS[name], **options)
        seen = [environments.reset(seed=seed)[0]]
        if state is not None:
            environments.unwrapped.batched_env.load_state_dict(state)
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
                assert (environments.unwrapped.batched_env.steps[ended] == 0).all()
            seen.append(np.concatenate([observation.ravel(), rewards, ended]))
            if len(seen) == 31:
                halfway = environments.unwrapped.batched_env.state_dict()
        return seen[1:], halfway if steps > 30 else None

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
    assert act(env, 1 + colour) == (0, False, False), "there is no door here"
    seen = []
    for _ in range(3):
        assert act(env, 0) == (0, False, False)
        seen.append(env.observe()[0, 0])
    assert seen == [2, 2, 3]
    assert act(env, 0) == (0, False, False) and env.observe()[0, 0] == 3, "the corridor ends here"
    assert act(env, 1 + (colour if right else 1 - colour)) == (float(right), True, False)


def test_corridor_ends():
    env = start("corridor", length=3)
    for _ in range(11):
        assert act(env, 1) == (0, False, False)
    assert act(env, 1) == (0, False, True)


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


def test_mazes_differ():
    assert len({generate_maze(np.random.default_rng(seed), 5).tobytes() for seed in range(30)}) > 5


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


def test_episodes_end():
    for name in ("maze", "maze_easy", "water_maze"):
        env = start(name, limit=3)
        assert [act(env, 1)[1:] for _ in range(3)] == [(False, False), (False, False), (False, True)]


@pytest.mark.parametrize(
    "name,arguments,message",
    [
        ("corridor", {"length": 0}, "--length 0: give 1 or more"),
        ("maze", {"size": 8}, "--size 8: give an odd number"),
        ("maze", {"size": 3}, "--size 3: give 5 or more"),
        ("water_maze", {"limit": 0}, "--limit 0: give 1 or more"),
        ("water_maze", {"render_mode": "spam"}, "render_mode spam: unknown; choose from rgb_array, ansi"),
    ],
)
def test_bad_sizes(name, arguments, message):
    for make in gymnasium.make, gymnasium.make_vec:
        with pytest.raises(ValueError, match=message):
            make(ENV_IDS[name], **arguments)


def test_bad_actions():
    environments = gymnasium.make_vec(ENV_IDS["maze"], num_envs=2)
    environments.reset(seed=1)
    message = r"action \[0 3\]: give 2 integers from 0 to 2 \(forward, turn left, turn right\)"
    with pytest.raises(ValueError, match=message):
        environments.step(np.array([0, 3]))
    with pytest.raises(ValueError, match="give 2 integers"):
        environments.step(np.array([0]))
    with pytest.raises(ValueError, match=r"action \[9\]: give 1 integers from 0 to 3"):
        one = gymnasium.make(ENV_IDS["maze_easy"]).unwrapped
        one.reset(seed=1)
        one.step(9)
