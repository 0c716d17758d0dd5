"""Read a text with a language model step by step, and keep what it computes.

Step 0 reads ``</s>``, with which texts begin, and step t their t-th token. Each step attends to the memory of the steps
before it, predicts the next token, and adds itself to the memory.
"""

import copy
import math
from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from fb_fairseq.commands.plot.context import losses
from fb_fairseq.commands.plot.measures import BLOCK_STEPS, check_attention
from fb_fairseq.commands.read_model import read_language_model
from fb_fairseq.errors import UserError
from fb_fairseq.pretrained.model import LanguageModel, choices
from fb_fairseq.symbols import EOS, words_of


def load(path: str, data: str | None = None, cpu: bool = False) -> LanguageModel:
    """Load a language model with attention. A model of labels must keep track of a product of permutations: the words
    of its dictionaries are their images of 1, 2, …, such as 213.

    Args:
        path: a checkpoint, a folder that ``fb-fairseq export`` has written, or a name of
            ``fb_fairseq.pretrained``.
        data: folder with a checkpoint's dictionary; None: that of its training data.
        cpu: use the CPU even if there is a GPU.
    """
    model = read_language_model(path, data, cpu)
    check_attention(model)
    if model.labels:  # each symbol is the images of 1, 2, … in some order
        images = {"".join(sorted(word)) for symbols in model.dictionaries.values() for word in words_of(symbols)}
        if len(images) != 1 or not "123456789".startswith(*images):
            raise UserError(f"{path}: its labels are no products of permutations; use plot --position-accuracy")
    return model


class Reading:
    """A text that a model has read so far.

    Attributes:
        model: the model.
        tokens: those read, ``</s>`` first: a token for each step.
        bits: the surprise of each token, −log₂ of the probability that the model gave it; of the first one 0. Trackers
            predict no tokens, and have only this one.
        before: of a tracker, the products of the text that was read before this one.

    Args:
        model: the model.
        before: what was read before; None: nothing.
    """

    def __init__(self, model: LanguageModel, before: "Reading | None" = None):
        self.model = model
        self.tokens: list[int] = []
        self.bits = [0.0]
        self.before = before.products() if before and model.labels else []
        self._state = None
        # Of each step: features [D], attention [L, H, S] by distance, and what it adds to the memory, [K, D].
        self._features: list[Tensor] = []
        self._attention: list[Tensor] = []
        self._memory: list[Tensor] = []
        self.read([EOS])

    def __len__(self) -> int:
        """Number of steps."""
        return len(self.tokens)

    def read(self, tokens: Sequence[int]) -> None:
        """Go on reading: the result is the same as if all of the text had been read at once."""
        stack = self.model.stack
        # Not more steps than the memory carries on: so it holds all that the block has added.
        block = max(1, min(BLOCK_STEPS, stack.carried_steps(stack.reaches())))
        for first in range(0, len(tokens), block):
            with torch.no_grad():
                self._read_block(list(tokens[first : first + block]))

    def _read_block(self, tokens: list[int]) -> None:
        stack = copy.copy(self.model.stack)  # which is watched; windows of the browser have threads of their own
        x_TBD = self.model.embed(torch.tensor([tokens], device=self.model.device), len(self)).transpose(0, 1)
        weights_LBHTS, after = stack.memory_attention(x_TBD, self._state)
        with stack.watching() as watched:  # by plain operations: no step loop has to be compiled first
            stack.run_block(x_TBD, self._state)
        self._state = after
        features_TD = watched[0][-1][:, 0]
        if self.tokens and not self.model.labels:
            before_TD = torch.cat([self._features[-1][None].to(features_TD), features_TD[:-1]])
            self.bits += (losses(self.model, before_TD, torch.tensor(tokens)) / math.log(2)).tolist()
        self.tokens += tokens
        self._features += features_TD.cpu().unbind(0)
        self._attention += weights_LBHTS[:, 0].cpu().unbind(2)
        self._memory += after.memory_KCBD[:, -len(tokens) :, 0].cpu().unbind(1)

    def next_log_probs(self, step: int) -> Tensor:
        """The log-probabilities [V] of the token after a step."""
        with torch.no_grad():
            return self.model.log_probs(self._features[step][None, None].to(self.model.device))[0, 0].cpu()

    def entropy(self, step: int) -> float:
        """The entropy of the next token, in bits."""
        return torch.distributions.Categorical(logits=self.next_log_probs(step)).entropy().item() / math.log(2)

    def drawn(self, step: int, temperature: float, topk: int) -> Tensor:
        """The probabilities [V] with which ``fb-fairseq generate`` draws the token after a step."""
        lprobs = self.next_log_probs(step)
        probabilities, tokens = choices(lprobs, self.model.vocabulary.never_drawn, temperature, topk)
        return torch.zeros_like(lprobs).index_put((tokens,), probabilities)

    def products(self) -> list[str]:
        """Of a model with labels: the product so far that it gives each step after the first."""
        *_, names = self.model.dictionaries.values()
        return [names[int(self.next_log_probs(step).argmax())] for step in range(1, len(self))]

    def right_products(self) -> list[str]:
        """The right products: of permutations, written as the images of 1, 2, …, the right one acts first."""
        names = [self.model.vocabulary.symbols[token] for token in self.tokens[1:]]
        return list(accumulate(names, lambda product, one: "".join(product[int(image) - 1] for image in one)))

    def seen(self, step: int) -> range:
        """The steps in the memory that a step attends to, oldest first."""
        return range(max(0, step - max(self.model.stack.reaches())), step)

    def attention(self, step: int) -> Tensor:
        """Attention of a step's layers and heads: weights [L, H, C] of the steps ``seen``.

        A head's weights sum to 1, but where persistent vectors take a part of its attention.
        """
        return self._attention[step][..., : len(self.seen(step))].flip(-1)

    def memory(self, step: int) -> Tensor:
        """The memory that a step attends to, and the vector that it adds: [K, C + 1, D] of the steps ``seen`` and its
        own. K is 1, or the number of layers where each has a memory of its own.
        """
        return torch.stack(self._memory[self.seen(step).start : step + 1], 1)
