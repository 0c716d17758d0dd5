"""Read a text step by step, and keep what the model computes.

Step 0 reads ``</s>``, with which texts begin, and step t their t-th token. Each step attends to the memory of the steps
before it, predicts the next token, and adds itself to the memory. Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

import copy
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Optional

from fb_fairseq.commands.explore.loading import ExploredModel
from fb_fairseq.commands.explore.text import EOS, NEVER_DRAWN
from fb_fairseq.commands.generate import choices

if TYPE_CHECKING:  # torch is imported only in the functions that need it
    from torch import Tensor

BLOCK_STEPS = 64  # that are computed together, at most


class Candidate(NamedTuple):
    """A token that may come next.

    Attributes:
        probability: the model's.
        drawn: its probability in generating, with temperature and top-k.
    """

    token: int
    probability: float
    drawn: float


class Reading:
    """A text that a model has read so far.

    Attributes:
        model: the model.
        tokens: those read, ``</s>`` first: a token for each step.
        bits: the surprise of each token, −log₂ of the probability that the model gave it; of the first one 0.
    """

    def __init__(self, model: ExploredModel):
        self.model = model
        self.tokens: list[int] = []
        self.bits: list[float] = []
        self._state = None
        self._features: list[Tensor] = []  # of each step, [D]
        self._attention: list[Tensor] = []  # [L, H, S] by distance
        self._memory: list[Tensor] = []  # what each step adds, [K, D]
        self.read([EOS])

    def copy(self) -> "Reading":
        """Another reading of the same text, which may go on differently."""
        other = copy.copy(self)
        for name in ("tokens", "bits", "_features", "_attention", "_memory"):
            setattr(other, name, list(getattr(self, name)))
        return other

    def __len__(self) -> int:
        """Number of steps."""
        return len(self.tokens)

    def read(self, tokens: Sequence[int]) -> None:
        """Go on reading: the result is the same as if all of the text had been read at once."""
        import torch

        stack = self.model.stack
        # Not more steps than the memory carries on: so it holds all that the block has added.
        block = max(1, min(BLOCK_STEPS, stack.carried_steps(stack.reaches())))
        for first in range(0, len(tokens), block):
            with torch.no_grad(), self.model.lock:
                self._read_block(list(tokens[first : first + block]))

    def _read_block(self, tokens: list[int]) -> None:
        import torch

        stack, T = self.model.stack, len(tokens)
        x_TBD = self.model.embed(torch.tensor([tokens], device=self.model.device), len(self)).transpose(0, 1)
        weights_LBHTS, after = stack.memory_attention(x_TBD, self._state)
        with stack.watching() as watched:  # by plain operations: no step loop has to be compiled first
            stack.run_block(x_TBD, self._state)
        self._state = after
        features_TD = watched[0][-1][:, 0]
        if self.tokens:
            before_TD = torch.cat([self._features[-1][None].to(features_TD), features_TD[:-1]])
            lprobs_T = self.model.log_probs(before_TD).gather(1, torch.tensor(tokens, device=before_TD.device)[:, None])
            self.bits += [-lprob / math.log(2) for lprob in lprobs_T[:, 0].tolist()]
        else:
            self.bits += [0.0]
        self.tokens += tokens
        self._features += features_TD.cpu().unbind(0)
        self._attention += weights_LBHTS[:, 0].cpu().unbind(2)
        self._memory += after.memory_KCBD[:, -T:, 0].cpu().unbind(1)

    def mean_bits(self) -> float | None:
        """The mean surprise of the text's tokens; None if it has none."""
        return sum(self.bits[1:]) / (len(self) - 1) if len(self) > 1 else None

    def next_log_probs(self, step: int) -> "Tensor":
        """The log-probabilities [V] of the token after a step."""
        import torch

        with torch.no_grad():
            return self.model.log_probs(self._features[step][None].to(self.model.device))[0].cpu()

    def candidates(self, step: int, number: int, temperature: float, topk: int) -> list[Candidate]:
        """The likeliest tokens after a step, and the one that follows it in the text, wherever it is."""
        lprobs = self.next_log_probs(step)
        likeliest = lprobs.topk(min(number, len(lprobs))).indices.tolist()
        follows = self.tokens[step + 1 : step + 2]
        probabilities, symbols = choices(lprobs, NEVER_DRAWN, temperature, topk)
        drawn = dict(zip(symbols.tolist(), probabilities.tolist()))
        shown = likeliest + [token for token in follows if token not in likeliest]
        return [Candidate(token, lprobs[token].exp().item(), drawn.get(token, 0.0)) for token in shown]

    def entropy(self, step: int) -> float:
        """How unsure the model is of the next token, in bits."""
        lprobs = self.next_log_probs(step)
        return -(lprobs.exp() * lprobs.clamp(min=-1e9)).sum().item() / math.log(2)

    def draw(self, temperature: float, topk: int) -> int:
        """The next token, drawn as ``python -m fb_fairseq generate`` does."""
        import torch

        probabilities, symbols = choices(self.next_log_probs(len(self) - 1), NEVER_DRAWN, temperature, topk)
        return int(symbols[torch.multinomial(probabilities, 1)[0]])

    def seen(self, step: int) -> range:
        """The steps in the memory that a step attends to, oldest first."""
        return range(max(0, step - max(self.model.stack.reaches())), step)

    def attention(self, step: int) -> "Tensor":
        """Attention of a step's layers and heads: weights [L, H, C] of the steps ``seen``.

        A head's weights sum to 1, but where persistent vectors take a part of its attention.
        """
        return self._attention[step][..., : len(self.seen(step))].flip(-1)

    def persistent(self, step: int) -> Optional["Tensor"]:
        """The share [L, H] of a step's attention that its layers and heads pay to persistent vectors. None if the model
        has none, or not in the same softmax."""
        options = self.model.stack.options
        if not getattr(options, "persistent_memory_size", 0) or options.persistent_memory_variant != "all-attn":
            return None
        return 1 - self._attention[step].sum(-1)

    def memory(self, step: int) -> "Tensor":
        """The memory that a step attends to: vectors [K, C, D] of the steps ``seen``. K is 1, or the number of layers
        where each has a memory of its own."""
        import torch

        seen = self.seen(step)
        return torch.stack(self._memory[seen.start : seen.stop], 1) if seen else self._memory[0][:, None][:, :0]

    def added(self, step: int) -> "Tensor":
        """The vectors [K, D] that a step adds to the memory."""
        return self._memory[step]


def mixture(model: ExploredModel) -> list[list[float]]:
    """The weights of the embedding and of each layer's output in each memory, [K, L + 1]."""
    import torch

    stack = model.stack
    with torch.no_grad():
        return stack.loop_weights(model.device, stack.reaches()).mix_KA.tolist()
