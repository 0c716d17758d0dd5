"""The page: its parts, and the actions of its buttons."""

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr

from fb_fairseq.commands.explore import pictures
from fb_fairseq.commands.explore.reading import EOS, UNK, ExploredModel, Reading, Vocabulary, check_length
from fb_fairseq.errors import UserError

EXAMPLE_CODE = "def main(argv=None):\n    for name in argv:\n        print(name)\n"
EXAMPLE_WORDS = "the first of the two was not the last , and it is known that they have been there"
DRAWN = 64  # elements of a group
MANY = 40  # tokens that are generated with one click
PAUSE = 0.06  # seconds between two of them, to watch
EACH_HEAD, MEAN = "each head", "mean of heads"
STYLE, STEPS_IN_TEXT = (Path(__file__).with_name(name).read_text() for name in ("page.css", "steps.js"))
SYSTEM_FONTS = (["system-ui", "-apple-system", "Segoe UI", "sans-serif"], ["ui-monospace", "Menlo", "monospace"])


def example(vocabulary: Vocabulary) -> str:
    """A text to begin with; for models of words one of words that they know."""
    if vocabulary.of_bytes:
        return EXAMPLE_CODE
    known = [word for word in EXAMPLE_WORDS.split() if word in vocabulary.symbols]
    return " ".join(known if len(known) > 2 else vocabulary.symbols[EOS + 2 : EOS + 12])


def facts(model: ExploredModel) -> str:
    """The head of the page: which model it is (HTML)."""
    o, parameters = model.stack.options, sum(p.numel() for p in model.decoder.parameters())
    sizes = (
        f"{o.decoder_layers} layers × {o.decoder_attention_heads} heads, width {o.decoder_embed_dim}, remembers "
        f"{max(model.stack.reaches())} steps, {parameters / 1e6:.1f} million parameters, reads {model.vocabulary.unit}s"
    )
    return f'<div class="ex-head"><h1>{model.kind}</h1><p><b>{pictures.escape(model.path)}</b>: {sizes}</p></div>'


class Explorer:
    """The actions of the page's buttons. ``most``: steps that a text may have."""

    def __init__(self, model: ExploredModel, most: int):
        self.model, self.most = model, most

    def read(self, text: str) -> Reading:
        """Read a text.

        Raises:
            gr.Error: it is too long."""
        tokens = self.model.vocabulary.encode(text)
        try:
            check_length(tokens, self.most, self.model.vocabulary.unit)
        except UserError as error:
            raise gr.Error(str(error), print_exception=False) from None
        reading = Reading(self.model)
        reading.read(tokens)
        return reading

    def text_of(self, reading: Reading) -> str:
        """The text that was read."""
        return self.model.vocabulary.decode(reading.tokens[1:])

    def generate(self, text: str, reading: Reading | None, number: int, temperature: float, topk: int) -> Iterator:
        """Generate tokens one by one, after the text as it stands in the page.

        Yields:
            The reading after each token."""
        reading = self.read(text) if reading is None or text != self.text_of(reading) else reading.copy()
        for i in range(int(number)):
            if len(reading) > self.most:
                raise gr.Error(f"The text has {self.most:,} steps now, its most (--max-steps).", print_exception=False)
            token = reading.draw(temperature, int(topk))
            if token == EOS and self.model.vocabulary.of_bytes:
                gr.Info("The model ended the text here (</s>).")
                return
            reading.read([token])
            yield reading
            if i + 1 < number:
                time.sleep(PAUSE)

    def show(
        self, reading: Reading, step: int, temperature: float, topk: int, heads: str, memory: int = 1
    ) -> list[Any]:
        """The pictures of a step: surprise, next token, attention and memory; and the slider."""
        last = len(reading) - 1
        step = min(int(step), last)
        return [
            pictures.surprise(reading, step),
            pictures.next_token(reading, step, temperature, int(topk)),
            pictures.attention_and_memory(reading, step, heads == EACH_HEAD, int(memory)),
            gr.update(maximum=max(1, last), value=step),
        ]


def build_tracker_page(model: ExploredModel, most: int, text: str | None) -> gr.Blocks:
    """The page of a model that keeps track of a product; see ``build_page``."""
    explorer, elements = Explorer(model, most), model.vocabulary.symbols[UNK + 1 :]

    def drawn(number: int) -> str:
        return " ".join(random.choices(elements, k=int(number)))

    with gr.Blocks(title=f"{model.kind}: {model.path}", analytics_enabled=False) as page:
        reading, before = gr.State(None), gr.State([])
        gr.HTML(facts(model))
        info = f"Type some of its {len(elements)} elements, such as {elements[1]}, or draw some; then press Read."
        box = gr.Textbox(text or drawn(DRAWN), lines=3, max_lines=6, label="Elements", info=info, elem_id="text")
        with gr.Row():
            read = gr.Button("Read", variant="primary", elem_id="read")
            one = gr.Button("Change the element of this step", elem_id="change")
            many = gr.Button("Draw", elem_id="draw")
            number = gr.Slider(1, most, DRAWN, step=1, label="Number of elements to draw", elem_id="number")
        products = gr.HTML(js_on_load=STEPS_IN_TEXT, container=True, padding=True, elem_id="products")
        step = gr.Slider(1, 2, 1, step=1, label="Step", info="which step the picture below is of", elem_id="step")
        attention = gr.HTML(container=True, padding=True, elem_id="attention")
        gr.HTML(pictures.layer_weights(model), container=True, padding=True, elem_id="weights")

        def read_text(text, last, at):
            unknown = [word for word in text.split() if word not in elements]
            if unknown or not text.split():
                raise gr.Error(f"{' '.join(unknown[:1])}: give elements, such as {elements[1]}", print_exception=False)
            found, earlier = explorer.read(text), last.products() if last else []
            return [text, found, earlier, *show(found, earlier, at)]

        def change(text, last, at):
            words = text.split()
            place = min(int(at), len(words)) - 1
            words[place] = random.choice([element for element in elements if element != words[place]])
            return read_text(" ".join(words), last, at)

        def show(found, earlier, at):
            at = max(1, min(int(at), len(found) - 1))
            picture = pictures.attention_and_memory(found, at, True)
            return [pictures.products(found, at, earlier), picture, gr.update(maximum=len(found) - 1, value=at)]

        quiet = dict(show_progress="hidden", api_visibility="private")
        shown = [products, attention, step]
        everything = [box, reading, before, *shown]
        gr.on([read.click, box.submit], read_text, [box, reading, step], everything, **quiet)
        page.load(read_text, [box, reading, step], everything, **quiet)
        one.click(change, [box, reading, step], everything, **quiet)
        many.click(lambda number: read_text(drawn(number), None, 1), number, everything, **quiet)
        step.input(show, [reading, before, step], shown, **quiet)

        def show_clicked(found, earlier, event: gr.EventData):
            return show(found, earlier, event.step)

        products.click(show_clicked, [reading, before], shown, **quiet)
    return page


def build_page(model: ExploredModel, most: int, text: str | None = None) -> gr.Blocks:
    """The page of a model. ``most``: steps that a text may have. ``text``: to begin with; None: an example."""
    if model.labels:
        return build_tracker_page(model, most, text)
    explorer, unit, options = Explorer(model, most), model.vocabulary.unit, model.stack.options
    few = options.decoder_layers * options.decoder_attention_heads <= pictures.EACH_HEAD_ROWS
    memories = len(pictures.mix_KA(model))
    with gr.Blocks(title=f"{model.kind}: {model.path}", analytics_enabled=False) as page:
        reading = gr.State(None)
        gr.HTML(facts(model))
        with gr.Row(equal_height=True):
            with gr.Column(scale=7):
                box = gr.Textbox(
                    example(model.vocabulary) if text is None else text,
                    lines=4,
                    max_lines=9,
                    label="Text",
                    info="Type or paste, then press Read (or Shift+Enter). The model reads </s> before it.",
                    elem_id="text",
                )
                with gr.Row():
                    read = gr.Button("Read", variant="primary", elem_id="read", min_width=90)
                    one = gr.Button(f"Next {unit}", elem_id="one", min_width=90)
                    many = gr.Button(f"Generate {MANY}", elem_id="many", min_width=90)
                    stop = gr.Button("Stop", elem_id="stop", min_width=90)
            with gr.Column(scale=4):
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
            with gr.Column(scale=4, min_width=330):
                following = gr.HTML(container=True, padding=True, elem_id="next")
                gr.HTML(pictures.layer_weights(model), container=True, padding=True, elem_id="weights")
            with gr.Column(scale=9, min_width=600):
                attention = gr.HTML(container=True, padding=True, elem_id="attention")

        settings = [temperature, topk, heads, memory]
        shown = [surprise, following, attention, step]

        def read_text(text, *values):
            found = explorer.read(text)
            return [found, *explorer.show(found, len(found) - 1, *values)]

        def generate(text, before, number, *values):
            for found in explorer.generate(text, before, number, *values[:2]):
                yield [found, explorer.text_of(found), *explorer.show(found, len(found) - 1, *values)]

        def show(found, at, *values):
            return explorer.show(found, at, *values)

        def show_clicked(found, temperature, topk, heads, memory, event: gr.EventData):
            return explorer.show(found, event.step, temperature, topk, heads, memory)

        quiet = dict(show_progress="hidden", api_visibility="private")
        gr.on([read.click, box.submit], read_text, [box, *settings], [reading, *shown], **quiet)
        page.load(read_text, [box, *settings], [reading, *shown], **quiet)
        runs = [
            button.click(generate, [box, reading, gr.State(number), *settings], [reading, box, *shown], **quiet)
            for button, number in ((one, 1), (many, MANY))
        ]
        stop.click(None, cancels=runs)
        gr.on([step.input, *(each.change for each in settings)], show, [reading, step, *settings], shown, **quiet)
        surprise.click(show_clicked, [reading, *settings], shown, **quiet)
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
        share=False,
        inbrowser=False,
        quiet=True,
        prevent_thread_lock=True,
        show_error=True,
        footer_links=["settings"],
        run_history=False,
        ssr_mode=False,
        enable_monitoring=False,
        mcp_server=False,
        pwa=False,
    )
