"""The page: its head, its parts, and which action each button has."""

from functools import partial
from html import escape
from pathlib import Path

import gradio as gr

from fb_fairseq.commands.explore import weights
from fb_fairseq.commands.explore.actions import Explorer, Tracker
from fb_fairseq.commands.explore.attention import EACH_HEAD_ROWS
from fb_fairseq.pretrained.model import LanguageModel
from fb_fairseq.pretrained.vocabulary import Vocabulary
from fb_fairseq.symbols import words_of

EXAMPLE_CODE = "def main(argv=None):\n    for name in argv:\n        print(name)\n"
EXAMPLE_WORDS = 10  # the most frequent ones of the dictionary
KINDS = {
    "FeedbackTransformer": "Feedback Transformer",
    "RelativeTransformer": "Transformer",
    "AllAttention": "All-attention network",
}
MANY = 40  # tokens that are generated with one click, or fewer where texts may not have so many
STEPS_IN_TEXT = Path(__file__).with_name("steps.js").read_text("utf-8")


def example(vocabulary: Vocabulary, most: int) -> str:
    """A text of at most so many tokens to begin with; for models of words, of words that they know."""
    if vocabulary.of_bytes:
        return EXAMPLE_CODE[:most]
    return " ".join(words_of(vocabulary.symbols)[: min(EXAMPLE_WORDS, most)])


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
    return f'<div class="ex-head"><h1>{kind_of(model)}</h1><p><b>{escape(model.source)}</b>: {sizes}</p></div>'


def build_page(model: LanguageModel, most: int, text: str | None = None) -> gr.Blocks:
    """The page of a model.

    Args:
        model: that reads.
        most: steps that a text may have.
        text: to begin with; None: an example.
    """
    explorer = (Tracker if model.labels else Explorer)(model, most)
    unit, options, is_text = model.vocabulary.unit, model.stack.options, not model.labels
    many = min(MANY, most)
    if text is None:
        text = explorer.drawn(many) if model.labels else example(model.vocabulary, most)
    explorer.tokens_of(text)  # refused here rather than in the page
    few = options.decoder_layers * options.decoder_attention_heads <= EACH_HEAD_ROWS
    memories = len(weights.mix(model))
    button = partial(gr.Button, min_width=90)
    picture = partial(gr.HTML, container=True, padding=True)
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
                    read = button("Read", variant="primary", elem_id="read")
                    one = button(f"Next {unit}" if is_text else "Change this step", elem_id="one")
                    several = button(f"{'Generate' if is_text else 'Draw'} {many}", elem_id="many")
                    stop = button("Stop", elem_id="stop", visible=is_text)
            with gr.Column(scale=4, visible=is_text):
                temperature = gr.Slider(
                    0, 2, 0.8, step=0.05, label="Temperature", info=f"0: always the likeliest {unit}; 1: as it is"
                )
                topk = gr.Slider(0, 50, 10, step=1, label="Top-k", info="draw from the k likeliest; 0: from all")
        surprise = picture(js_on_load=STEPS_IN_TEXT, elem_id="surprise")
        with gr.Row():
            step = gr.Slider(
                0, 1, 0, step=1, label="Step", info="which step the pictures below are of", scale=5, elem_id="step"
            )
            heads = gr.Radio(
                [("each head", True), ("mean of heads", False)],
                value=few,
                label="Rows of attention",
                scale=3,
                min_width=200,
            )
            memory = gr.Dropdown(
                list(range(1, memories + 1)), value=1, label="Memory of layer", visible=memories > 1, min_width=110
            )
        with gr.Row():
            with gr.Column(scale=4, min_width=330, visible=is_text):
                following = picture(elem_id="next")
                picture(weights.layer_weights(model), elem_id="weights")
            with gr.Column(scale=9, min_width=600):
                attention = picture(elem_id="attention")

        settings = [temperature, topk, heads, memory]
        shown = [surprise, following, attention, step]

        quiet = {"show_progress": "hidden", "api_visibility": "private"}
        begins = [page.load, read.click, box.submit]
        gr.on(begins, explorer.show_read, [box, reading, *settings], [reading, *shown], **quiet)
        runs = [
            clicked.click(
                explorer.show_generated,
                [box, reading, gr.State(number), step, *settings],
                [reading, box, *shown],
                **quiet,
            )
            for clicked, number in ((one, 1), (several, many))
        ]
        stop.click(None, cancels=runs)
        changes = [step.input, *(setting.change for setting in settings)]
        gr.on(changes, explorer.show, [reading, step, *settings], shown, **quiet)
        surprise.click(explorer.show_clicked, [reading, *settings], shown, **quiet)
    return page
