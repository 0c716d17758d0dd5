"""The actions of the page: read a text, generate, draw elements, and show a step.

Functions that gradio calls take the values of the page's parts, in this order: those that the action needs, and at the
end temperature and top-k of generating; whether attention has a row for each head, or for each layer; and the layer,
from 1 on, whose memory is shown (1 where all layers have the same). They return the values that parts of the page get.
"""

import random
import time
from collections.abc import Iterator
from typing import Any

import gradio as gr

from fb_fairseq.commands.explore import predictions
from fb_fairseq.commands.explore.attention import attention_and_memory
from fb_fairseq.commands.explore.reading import Reading
from fb_fairseq.commands.explore.text import products, surprise
from fb_fairseq.errors import UserError
from fb_fairseq.pretrained.model import LanguageModel
from fb_fairseq.symbols import EOS, words_of

PAUSE = 0.06  # seconds between two tokens that are generated, to watch


class Explorer:
    """The actions where the model predicts the next token.

    Args:
        model: the model.
        most: steps that a text may have.
    """

    def __init__(self, model: LanguageModel, most: int):
        self.model = model
        self.most = most

    def tokens_of(self, text: str) -> list[int]:
        """The tokens of a text, which must not be too long. Words that the model does not know become ``<unk>``."""
        tokens, unit = self.model.vocabulary.encode(text), self.model.vocabulary.unit
        if len(tokens) > self.most:
            raise UserError(f"{len(tokens):,} {unit}s are too many: the page reads {self.most:,} at most (--max-steps)")
        return tokens

    def read(self, text: str, before: Reading | None = None) -> Reading:
        """Read a text.

        Args:
            text: of the page.
            before: see ``Reading``.

        Raises:
            gr.Error: ``tokens_of`` refuses it.
        """
        try:
            tokens = self.tokens_of(text)
        except UserError as error:
            raise gr.Error(str(error), print_exception=False) from None
        reading = Reading(self.model, before)
        reading.read(tokens)
        return reading

    def text_of(self, reading: Reading) -> str:
        """The text that was read."""
        return self.model.vocabulary.decode(reading.tokens[1:])

    def generate(
        self, text: str, reading: Reading | None, number: int, temperature: float, topk: int
    ) -> Iterator[Reading]:
        """Generate tokens one by one, after the text as it stands in the page.

        Args:
            text: of the page.
            reading: what was read of it, which goes on; None: nothing.
            number: of tokens, at most.
            temperature: see ``fb_fairseq.pretrained.model.sample``.
            topk: see there.

        Yields:
            The reading after each token.

        Raises:
            gr.Error: ``tokens_of`` refuses the text, or it has as many steps as it may have.
        """
        if reading is None or text != self.text_of(reading):
            reading = self.read(text)
        for _ in range(number):
            if len(reading) > self.most:
                raise gr.Error(
                    f"The text has {self.most:,} steps now, the most that it may have (--max-steps).",
                    print_exception=False,
                )
            token = int(reading.drawn(len(reading) - 1, temperature, int(topk)).multinomial(1))
            if token == EOS and self.model.vocabulary.of_bytes:
                gr.Info("The model ended the text here (</s>).")
                return
            reading.read([token])
            yield reading
            time.sleep(PAUSE)

    def draw_text(self, reading: Reading, step: int) -> str:
        """The picture of the text (HTML)."""
        return surprise(reading, step)

    def show(
        self, reading: Reading, step: int, temperature: float, topk: int, each_head: bool, memory: int
    ) -> list[Any]:
        """The pictures of a step: the text, the next token, attention and memory; and what becomes of the slider.

        Args:
            reading: what was read.
            step: the step; where there are fewer, the last one is shown.
            temperature, topk: of generating.
            each_head: a row of attention for each head, instead of one for each layer.
            memory: the layer whose memory is shown, from 1 on.
        """
        last = len(reading) - 1
        step = min(int(step), last)
        return [
            self.draw_text(reading, step),
            predictions.next_token(reading, step, temperature, int(topk)),
            attention_and_memory(reading, step, each_head, memory),
            gr.update(maximum=max(1, last), value=step),
        ]

    def show_clicked(self, event: gr.EventData, reading: Reading, *settings: Any) -> list[Any]:
        """The pictures of the step on which was clicked; steps.js gives the event its ``step``."""
        return self.show(reading, event.step, *settings)

    def show_read(self, text: str, shown: Reading | None, *settings: Any) -> list[Any]:
        """Read a text in the place of what is ``shown``: what was read, and the pictures of its last step."""
        reading = self.read(text, shown)
        return [reading, *self.show(reading, len(reading) - 1, *settings)]

    def show_generated(
        self, text: str, shown: Reading | None, number: int, step: int, *settings: Any
    ) -> Iterator[list[Any]]:
        """Generate: after each token what was read, its text, and the pictures of the last step.

        Args:
            text, shown, number: see ``generate``.
            step: the one that the page has shown before.
            settings: temperature, topk, each_head and memory; see ``show``.
        """
        for reading in self.generate(text, shown, number, *settings[:2]):
            yield [reading, self.text_of(reading), *self.show(reading, len(reading) - 1, *settings)]


class Tracker(Explorer):
    """The actions where the model keeps track of a product: instead of generating, elements are drawn, all of which are
    equally likely.
    """

    def drawn(self, number: int, but: str = "") -> str:
        """Random elements. ``but``: one that is not drawn."""
        elements = [element for element in words_of(self.model.vocabulary.symbols) if element != but]
        return " ".join(random.choices(elements, k=number))

    def tokens_of(self, text: str) -> list[int]:
        """The tokens of elements, which must not be too many; other words are refused."""
        elements = words_of(self.model.vocabulary.symbols)
        unknown = [word for word in text.split() if word not in elements]
        if unknown:
            raise UserError(f"{unknown[0]}: no element of the model's group; give some like {self.drawn(3)}")
        return super().tokens_of(" ".join(text.split()))

    def change(self, text: str, shown: Reading | None, step: int) -> Reading:
        """Draw another element for a step of the text, or for the nearest step that it has."""
        words = text.split()
        place = min(max(1, int(step)), len(words)) - 1
        words[place] = self.drawn(1, but=words[place])
        return self.read(" ".join(words), shown)

    def draw_text(self, reading: Reading, step: int) -> str:
        return products(reading, step)

    def show_generated(
        self, text: str, shown: Reading | None, number: int, step: int, *settings: Any
    ) -> Iterator[list[Any]]:
        """Draw ``number`` elements; one: another one for the step, if there is a text."""
        if number > 1 or not text.split():
            reading = self.read(self.drawn(number))
        else:
            reading = self.change(text, shown, step)
        yield [reading, self.text_of(reading), *self.show(reading, step, *settings)]
