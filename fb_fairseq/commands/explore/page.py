"""The page: its parts, and the actions of its buttons."""

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr

from fb_fairseq.commands.explore import pictures
from fb_fairseq.commands.explore.reading import Reading
from fb_fairseq.pretrained.model import LanguageModel
from fb_fairseq.pretrained.vocabulary import Vocabulary
from fb_fairseq.symbols import EOS, words_of

EXAMPLE_CODE = "def main(argv=None):\n    for name in argv:\n        print(name)\n"
EXAMPLE_WORDS = 10  # the most frequent ones of the dictionary
KINDS = {
    "FeedbackTransformer": "Feedback Transformer",
    "RelativeTransformer": "Transformer",
    "AllAttention": "All-attention network",
}
MANY = 40  # tokens that are generated with one click
PAUSE = 0.06  # seconds between two of them, to watch
EACH_HEAD, MEAN = "each head", "mean of heads"
STYLE, STEPS_IN_TEXT = (Path(__file__).with_name(name).read_text("utf-8") for name in ("page.css", "steps.js"))
SYSTEM_FONTS = (["system-ui", "-apple-system", "Segoe UI", "sans-serif"], ["ui-monospace", "Menlo", "monospace"])


def example(vocabulary: Vocabulary) -> str:
    """A text to begin with; for models of words, of words that they know."""
    return EXAMPLE_CODE if vocabulary.of_bytes else " ".join(words_of(vocabulary.symbols)[:EXAMPLE_WORDS])


def kind_of(model: LanguageModel) -> str:
    """The papers' name of such a model."""
    return KINDS[type(model.stack).__name__]


def facts(model: LanguageModel) -> str:
    """The head of the page: which model it is (HTML)."""
    o, parameters = model.stack.options, sum(p.numel() for p in model.parameters())
    sizes = (
        f"{o.decoder_layers} layers × {o.decoder_attention_heads} heads, width {o.decoder_embed_dim}, remembers "
        f"{max(model.stack.reaches())} steps, {parameters / 1e6:.1f} million parameters, reads {model.vocabulary.unit}s"
    )
    return f'<div class="ex-head"><h1>{kind_of(model)}</h1><p><b>{pictures.escape(model.source)}</b>: {sizes}</p></div>'


class Explorer:
    """The actions of the page's buttons. Those that gradio calls take the values of the page's parts, in this order:
    what the action needs, and at the end ``settings``.

    ``settings`` are temperature and top-k of generating; the rows of attention, ``EACH_HEAD`` or ``MEAN``; and the
    layer, from 1 on, whose memory is shown (1 where all layers have the same).

    Args:
        model: the model.
        most: steps that a text may have.
    """

    draw_text = staticmethod(pictures.surprise)
    shows_newest = True  # whether generating shows the step that it has added

    def __init__(self, model: LanguageModel, most: int):
        self.model = model
        self.most = most

    def read(self, text: str, before: Reading | None = None) -> Reading:
        """Read a text.

        Args:
            text: of the page.
            before: the text that was read before it; only ``Tracker`` looks at it.

        Raises:
            gr.Error: it is too long, or has words that the model does not know.
        """
        tokens, unit = self.model.vocabulary.encode(text), self.model.vocabulary.unit
        if len(tokens) > self.most:
            message = f"{len(tokens):,} {unit}s are too many: the page reads {self.most:,} at most (--max-steps)"
            raise gr.Error(message, print_exception=False)
        reading = Reading(self.model)
        reading.read(tokens)
        return reading

    def text_of(self, reading: Reading) -> str:
        """The text that was read."""
        return self.model.vocabulary.decode(reading.tokens[1:])

    def generate(
        self, text: str, reading: Reading | None, number: int, temperature: float, topk: int, *, step: int = 0
    ) -> Iterator[Reading]:
        """Generate tokens one by one, after the text as it stands in the page.

        Args:
            text: of the page.
            reading: what was read of it; None: nothing.
            number: of tokens, at most.
            temperature: see ``fb_fairseq.pretrained.model.sample``.
            topk: see there.
            step: the one that is shown; only ``Tracker`` looks at it.

        Yields:
            The reading after each token.

        Raises:
            gr.Error: it has as many steps as a text may have.
        """
        reading = self.read(text) if reading is None or text != self.text_of(reading) else reading.copy()
        for i in range(int(number)):
            if len(reading) > self.most:
                raise gr.Error(f"The text has {self.most:,} steps now, its most (--max-steps).", print_exception=False)
            token = int(reading.drawn(len(reading) - 1, temperature, int(topk)).multinomial(1))
            if token == EOS and self.model.vocabulary.of_bytes:
                gr.Info("The model ended the text here (</s>).")
                return
            reading.read([token])
            yield reading
            if i + 1 < number:
                time.sleep(PAUSE)

    def show(self, reading: Reading, step: int, *settings: Any) -> list[Any]:
        """The pictures of a step: the text, the next token, attention and memory; and what becomes of the slider."""
        temperature, topk, heads, memory = settings
        last = len(reading) - 1
        step = min(int(step), last)
        return [
            self.draw_text(reading, step),
            pictures.next_token(reading, step, temperature, int(topk)),
            pictures.attention_and_memory(reading, step, heads == EACH_HEAD, int(memory)),
            gr.update(maximum=max(1, last), value=step),
        ]

    def show_read(self, text: str, before: Reading | None, *settings: Any) -> list[Any]:
        """Read a text (see ``read``): what was read, and the pictures of its last step."""
        reading = self.read(text, before)
        return [reading, *self.show(reading, len(reading) - 1, *settings)]

    def show_generated(
        self, text: str, reading: Reading | None, number: int, step: int, *settings: Any
    ) -> Iterator[list[Any]]:
        """Generate (see ``generate``): after each token what was read, its text, and the pictures of a step."""
        temperature, topk, *_ = settings
        for longer in self.generate(text, reading, number, temperature, topk, step=step):
            shown = len(longer) - 1 if self.shows_newest else step
            yield [longer, self.text_of(longer), *self.show(longer, shown, *settings)]

    def show_clicked(self, event: gr.EventData, reading: Reading, *settings: Any) -> list[Any]:
        """The pictures of the step on which was clicked; steps.js gives the event its ``step``."""
        return self.show(reading, event.step, *settings)


class Tracker(Explorer):
    """The actions where the model keeps track of a product."""

    draw_text = staticmethod(pictures.products)
    shows_newest = False

    def drawn(self, number: int, but: str = "") -> str:
        """Random elements. ``but``: one that is not drawn."""
        elements = [element for element in words_of(self.model.vocabulary.symbols) if element != but]
        return " ".join(random.choices(elements, k=number))

    def read(self, text: str, before: Reading | None = None) -> Reading:
        elements = words_of(self.model.vocabulary.symbols)
        unknown = [word for word in text.split() if word not in elements]
        if unknown:
            raise gr.Error(
                f"{unknown[0]}: no element of the model's group; give some like {self.drawn(3)}", print_exception=False
            )
        reading = super().read(" ".join(text.split()))
        reading.before = before.products() if before else []
        return reading

    def generate(
        self, text: str, reading: Reading | None, number: int, temperature: float, topk: int, *, step: int = 0
    ) -> Iterator[Reading]:
        """Draw elements: ``number`` of them, or a single one for the step. All of them are equally likely."""
        words = text.split()
        if number > 1 or not words:
            yield self.read(self.drawn(number))
        else:
            place = min(max(1, int(step)), len(words)) - 1
            words[place] = self.drawn(1, but=words[place])
            yield self.read(" ".join(words), reading)


def build_page(model: LanguageModel, most: int, text: str | None = None) -> gr.Blocks:
    """The page of a model.

    Args:
        model: that reads.
        most: steps that a text may have.
        text: to begin with; None: an example.
    """
    explorer = (Tracker if model.labels else Explorer)(model, most)
    unit, options, is_text = model.vocabulary.unit, model.stack.options, not model.labels
    if text is None:
        text = explorer.drawn(MANY) if model.labels else example(model.vocabulary)
    few = options.decoder_layers * options.decoder_attention_heads <= pictures.EACH_HEAD_ROWS
    memories = len(pictures.mix(model))
    with gr.Blocks(title=f"{kind_of(model)}: {model.source}", analytics_enabled=False) as page:
        reading = gr.State(None)
        gr.HTML(facts(model))
        with gr.Row(equal_height=True):
            with gr.Column(scale=7):
                box = gr.Textbox(
                    text,
                    lines=4,
                    max_lines=9,
                    label="Text",
                    info=f"Type {'text' if is_text else f'elements, such as {explorer.drawn(3)}'}, then press Read (or "
                    "Shift+Enter). The model reads </s> before it.",
                    elem_id="text",
                )
                with gr.Row():
                    read = gr.Button("Read", variant="primary", elem_id="read", min_width=90)
                    one = gr.Button(f"Next {unit}" if is_text else "Change this step", elem_id="one", min_width=90)
                    many = gr.Button(f"{'Generate' if is_text else 'Draw'} {MANY}", elem_id="many", min_width=90)
                    stop = gr.Button("Stop", elem_id="stop", min_width=90, visible=is_text)
            with gr.Column(scale=4, visible=is_text):
                temperature = gr.Slider(
                    0, 2, 0.8, step=0.05, label="Temperature", info=f"0: always the likeliest {unit}; 1: as it is"
                )
                topk = gr.Slider(0, 50, 10, step=1, label="Top-k", info="draw from the k likeliest; 0: from all")
        surprise = gr.HTML(js_on_load=STEPS_IN_TEXT, container=True, padding=True, elem_id="surprise")
        with gr.Row():
            step = gr.Slider(
                0, 1, 0, step=1, label="Step", info="which step the pictures below are of", scale=5, elem_id="step"
            )
            heads = gr.Radio(
                [EACH_HEAD, MEAN], value=EACH_HEAD if few else MEAN, label="Rows of attention", scale=3, min_width=200
            )
            memory = gr.Dropdown(
                list(range(1, memories + 1)), value=1, label="Memory of layer", visible=memories > 1, min_width=110
            )
        with gr.Row():
            with gr.Column(scale=4, min_width=330, visible=is_text):
                following = gr.HTML(container=True, padding=True, elem_id="next")
                gr.HTML(pictures.layer_weights(model), container=True, padding=True, elem_id="weights")
            with gr.Column(scale=9, min_width=600):
                attention = gr.HTML(container=True, padding=True, elem_id="attention")

        settings = [temperature, topk, heads, memory]
        shown = [surprise, following, attention, step]

        quiet = {"show_progress": "hidden", "api_visibility": "private"}
        begins = [page.load, read.click, box.submit]
        gr.on(begins, explorer.show_read, [box, reading, *settings], [reading, *shown], **quiet)
        runs = [
            button.click(
                explorer.show_generated,
                [box, reading, gr.State(number), step, *settings],
                [reading, box, *shown],
                **quiet,
            )
            for button, number in ((one, 1), (many, MANY))
        ]
        stop.click(None, cancels=runs)
        changes = [step.input, *(setting.change for setting in settings)]
        gr.on(changes, explorer.show, [reading, step, *settings], shown, **quiet)
        surprise.click(explorer.show_clicked, [reading, *settings], shown, **quiet)
    return page


def serve(page: gr.Blocks, host: str, port: int) -> None:
    """Serve the page from threads of this process; nothing is asked of the network or shared with it."""
    for name in ("no_proxy", "NO_PROXY"):  # gradio asks its own page for an answer
        os.environ[name] = ",".join(filter(None, [os.environ.get(name), host, "localhost"]))
    sans, mono = SYSTEM_FONTS
    theme = gr.themes.Default(primary_hue="blue", neutral_hue="zinc", font=sans, font_mono=mono)
    theme.set(block_info_text_color="*neutral_600", block_info_text_color_dark="*neutral_400")
    page.launch(
        server_name=f"[{host}]" if ":" in host else host,  # as in an address
        server_port=port,
        theme=theme,
        css=STYLE,
        inbrowser=False,
        quiet=True,
        prevent_thread_lock=True,
        show_error=True,
        footer_links=["settings"],
        share=False,
        enable_monitoring=False,
        mcp_server=False,
        run_history=False,
        pwa=False,
        ssr_mode=False,
    )
