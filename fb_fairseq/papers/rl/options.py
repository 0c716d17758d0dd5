"""Options of agents and of training. Their field names are the command line's, and keys in checkpoints."""

from dataclasses import dataclass

from fb_fairseq.command_line import LARGEST_SEED, option
from fb_fairseq.modules.options import CheckedOptions
from fb_fairseq.papers.rl.checks import check_range

AGENTS = ("feedback", "transformer", "lstm")
ENVIRONMENTS = ("corridor", "maze", "maze_easy", "water_maze")
SIZES = {
    "length": "length of the (longest) corridor",
    "shortest": "length of the shortest corridor",
    "size": "number of rows and columns of a maze",
    "limit": "number of steps of an episode in a maze",
}


@dataclass(frozen=True)
class AgentOptions(CheckedOptions):
    """Architecture of an agent. LSTMs have no heads, no spans and no feed-forward sublayers.

    Attributes:
        agent: one of ``AGENTS``.
        layers: 1 or more.
        width: D, unless the agent is an LSTM a multiple of ``heads``.
        ffn_width: of the feed-forward sublayers; 0: four times the width.
        heads: of attention, 1 or more.
        span: S, how many steps back attention reaches.
        previous_action: whether the agent observes its previous action, which the papers do not mention. In the
            corridor it must not: actions have no effect on the way, so the agent could store the colour in them,
            outside its memory.
    """

    agent: str = option("feedback", "architecture: feedback, transformer or lstm", AGENTS)
    layers: int = option(2, "number of layers")
    width: int = option(64, "model width")
    ffn_width: int = option(0, "width of the feed-forward sublayers; 0: four times the model width")
    heads: int = option(4, "number of attention heads")
    span: int = option(200, "how many steps back attention reaches")
    previous_action: bool = True

    def __post_init__(self):
        self.check_fields()
        self.check_positive("layers", "width", "heads", "span")
        check_range("ffn_width", self.ffn_width, 0)
        divided = self.agent == "lstm" or self.width % self.heads == 0
        self.check(divided, "heads", f"does not divide --width {self.width}; give one that does")


@dataclass(frozen=True)
class TrainingOptions(CheckedOptions):
    """Environment and hyperparameters of A2C.

    Attributes:
        environment: one of ``ENVIRONMENTS``.
        sizes: size options of the environment, such as ``{"length": 30}``; its defaults where omitted.
        frames: steps in total, summed over the environments.
        environments: how many run in parallel, B.
        block: steps per block, T, over which gradients are propagated (the papers' BPTT length).
        optimizer: adam or rmsprop.
        lr: above 0.
        rmsprop_eps: epsilon of RMSprop, above 0.
        clip_norm: gradients of a larger norm are scaled down to it; above 0.
        discount: of future rewards, per step; 0 to 1.
        entropy_cost: weight of the policy's entropy in the loss; 0 or more.
        value_cost: weight of the value's squared error in the loss; 0 or more.
        seed: of the parameters, the environments and the sampled actions; 0 or more.
    """

    environment: str = option("corridor", "environment: corridor, maze, maze_easy or water_maze", ENVIRONMENTS)
    sizes: dict[str, int] | None = None
    frames: int = option(1_000_000, "total number of steps, summed over the environments")
    environments: int = option(64, "number of environments that run in parallel")
    block: int = option(100, "steps per block, over which gradients are propagated (the papers' BPTT length)")
    optimizer: str = option("adam", "adam or rmsprop", ("adam", "rmsprop"))
    lr: float = option(3e-4, "learning rate")
    rmsprop_eps: float = option(0.01, "epsilon of RMSprop")
    clip_norm: float = option(0.5, "gradients of a larger norm are scaled down to it")
    discount: float = option(0.99, "discount factor of future rewards, per step")
    entropy_cost: float = option(5e-4, "weight of the policy's entropy in the loss")
    value_cost: float = option(0.5, "weight of the value's squared error in the loss")
    seed: int = option(1, "seed of the parameters, the environments and the sampled actions")

    def __post_init__(self):
        self.check_positive("frames", "environments", "block")
        check_range("seed", self.seed, 0, LARGEST_SEED)
        for name in ("lr", "rmsprop_eps", "clip_norm"):
            self.check(getattr(self, name) > 0, name, "must be greater than 0")
        for name in ("entropy_cost", "value_cost"):
            self.check(getattr(self, name) >= 0, name, "must be 0 or more")
        self.check(0 <= self.discount <= 1, "discount", "must be between 0 and 1")
        self.check_fields()
