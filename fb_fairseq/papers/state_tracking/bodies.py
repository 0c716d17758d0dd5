"""Bodies of models, between the embedding and the classifier, from this project, torch and transformers.

Shapes: B sequences, L steps, D features.
"""

from typing import Any

import torch
import torch.nn as nn
from torch import Tensor

from fb_fairseq.modules.interface import Stack


class Body(nn.Module):
    """Layers from embeddings [B, L, D] to features [B, L, ``width``], each of which depends on no later step."""

    width: int

    def forward(self, x_BLD: Tensor) -> Tensor:
        """Run the layers over whole sequences."""
        raise NotImplementedError

    def start(self) -> Any:
        """The state that ``step`` takes before the first step."""
        return None

    def step(self, x_BD: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Run the layers over a step, ``x_BD``. Returns its features [B, D], and the state that the next step takes."""
        raise NotImplementedError

    def clamp(self) -> None:
        """Clamp parameters that have bounds. To be called after each optimizer step."""


class StackBody(Body):
    """Layers of this project."""

    def __init__(self, stack: Stack):
        super().__init__()
        self.stack, self.width = stack, stack.options.decoder_embed_dim

    def forward(self, x_BLD: Tensor) -> Tensor:
        return self.stack(x_BLD.transpose(0, 1))[0].transpose(0, 1)

    def start(self) -> Any:
        return self.stack.new_ring()

    def step(self, x_BD: Tensor, state: Any) -> tuple[Tensor, Any]:
        return self.stack.run_step(x_BD, state), state

    def clamp(self) -> None:
        self.stack.clamp()


class LSTMBody(Body):
    """torch's LSTM, of any number of hidden units."""

    def __init__(self, width: int, hidden: int, layers: int):
        super().__init__()
        self.lstm = nn.LSTM(width, hidden, layers, batch_first=True)
        self.width = hidden

    def forward(self, x_BLD: Tensor) -> Tensor:
        return self.lstm(x_BLD)[0]

    def step(self, x_BD: Tensor, state: Any) -> tuple[Tensor, Any]:
        y_BLD, state = self.lstm(x_BD[:, None], state)
        return y_BLD[:, 0], state


class TransformersBody(Body):
    """A model of Hugging Face transformers, without its embedding.

    Args:
        model: the model.
        state_name: its argument and output that carry the state from step to step, such as ``past_key_values``.
        more: further arguments of each call.
    """

    def __init__(self, model: nn.Module, state_name: str, **more: Any):
        super().__init__()
        self.model, self.state_name, self.more, self.width = model, state_name, more, model.config.hidden_size

    def forward(self, x_BLD: Tensor) -> Tensor:
        return self.model(inputs_embeds=x_BLD, use_cache=False, **self.more).last_hidden_state

    def step(self, x_BD: Tensor, state: Any) -> tuple[Tensor, Any]:
        given = self.more if state is None else {**self.more, self.state_name: state}
        output = self.model(inputs_embeds=x_BD[:, None], use_cache=True, **given)
        return output.last_hidden_state[:, 0], getattr(output, self.state_name)


class Tagger(nn.Module):
    """A model that gives each step of a sequence a label: embedding, body, classifier.

    Args:
        body: the layers.
        symbols: number of input symbols.
        classes: number of labels.
        width: of the embeddings.
    """

    def __init__(self, body: Body, symbols: int, classes: int, width: int):
        super().__init__()
        self.embedding = nn.Embedding(symbols, width)
        self.body = body
        self.classifier = nn.Linear(body.width, classes)
        nn.init.normal_(self.embedding.weight, std=1.0)

    def forward(self, inputs_BL: Tensor) -> Tensor:
        """Logits [B, L, classes]."""
        return self.classifier(self.body(self.embedding(inputs_BL)))

    @torch.no_grad()
    def decode(self, inputs_BL: Tensor) -> Tensor:
        """Logits [B, L, classes], as those of ``forward``, computed step by step."""
        state = self.body.start()
        logits = []
        for inputs_B in inputs_BL.unbind(1):
            y_BD, state = self.body.step(self.embedding(inputs_B), state)
            logits.append(self.classifier(y_BD))
        return torch.stack(logits, 1)
