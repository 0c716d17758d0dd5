"""Draw the figures of the pages: docs/figures/*.png.

python docs/make_figures.py
"""

import pathlib

from matplotlib import pyplot
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

from fb_fairseq.drawing import save_figure

FOLDER = pathlib.Path(__file__).with_name("figures")
LAYER, NOW, MEMORY, FAINT, INK = "#dbe4f0", "#8fb4e3", "#f3a35c", "#eef1f5", "#2b2f36"
LAYERS, STEPS = 3, 4


def _axes(width: float, height: float, columns: int = 1):
    figure, axes = pyplot.subplots(1, columns, figsize=(width, height), squeeze=False)
    for each in axes[0]:
        each.set_aspect("equal")
        each.axis("off")
    return figure, axes[0]


def _box(axes, x, y, width, height, color, text="", **style):
    shape = FancyBboxPatch((x - width / 2, y - height / 2), width, height, boxstyle="round,pad=0,rounding_size=0.08")
    shape.set(facecolor=color, edgecolor=INK, linewidth=0.8, **style)
    axes.add_patch(shape)
    axes.text(x, y, text, ha="center", va="center", fontsize=10, color=INK)


def _arrow(axes, start, end, bend=0.0, color=INK, width=1.1):
    style = {"connectionstyle": f"arc3,rad={bend}", "arrowstyle": "-|>", "mutation_scale": 9}
    axes.add_patch(FancyArrowPatch(start, end, color=color, linewidth=width, shrinkA=0, shrinkB=0, **style))


def _columns(axes, title: str) -> None:
    """Layers of the steps t-3 … t, the inputs below them."""
    for step in range(STEPS):
        now = step == STEPS - 1
        for layer in range(LAYERS):
            _box(axes, 1.7 * step, 1.15 * layer, 0.95, 0.5, NOW if now else LAYER, f"layer {layer + 1}")
            if layer:
                _arrow(axes, (1.7 * step, 1.15 * layer - 0.9), (1.7 * step, 1.15 * layer - 0.25))
        past = STEPS - 1 - step
        axes.text(1.7 * step, -1.0, "$x_t$" if now else f"$x_{{t-{past}}}$", ha="center", va="center", fontsize=12)
        _arrow(axes, (1.7 * step, -0.8), (1.7 * step, -0.25))
    axes.set_title(title, fontsize=12, color=INK, pad=8)
    axes.set_xlim(-0.6, 1.7 * STEPS - 0.9)
    axes.set_ylim(-1.3, 4.2)


def draw_idea():
    """What a step attends to in a Transformer and in a Feedback Transformer (v3 Figure 2)."""
    figure, (left, right) = _axes(10.5, 4.5, columns=2)
    now = 1.7 * (STEPS - 1)

    _columns(left, "Transformer: each layer attends to its own past inputs")
    for layer in range(LAYERS):
        for step in range(STEPS - 1):
            # From the top of the layer's box over those between.
            bend = -0.16 - 0.05 * (STEPS - 2 - step)
            start, end = (1.7 * step + 0.2, 1.15 * layer + 0.25), (now - 0.3, 1.15 * layer + 0.25)
            _arrow(left, start, end, bend, "#4a76b8")

    _columns(right, "Feedback Transformer: all layers attend to one memory")
    for step in range(STEPS - 1):
        past = STEPS - 1 - step
        _box(right, 1.7 * step, 3.55, 0.95, 0.5, MEMORY, f"$m_{{t-{past}}}$")
        for layer in range(-1, LAYERS):  # the embedding, then the layers
            start = (1.7 * step + 0.475, 1.15 * layer + 0.1) if layer >= 0 else (1.7 * step + 0.35, -0.95)
            _arrow(right, start, (1.7 * step + 0.3, 3.3), 0.12 + 0.04 * (LAYERS - layer), "#c06a1b", 0.9)
    rail = 1.7 * (STEPS - 2) + 0.95  # the memories are read along one line beside the current step
    right.plot([0.475, rail], [3.55, 3.55], color="#c06a1b", linewidth=1.6, zorder=0)
    right.plot([rail, rail], [0.0, 3.55], color="#c06a1b", linewidth=1.6)
    for layer in range(LAYERS):
        _arrow(right, (rail, 1.15 * layer), (now - 0.475, 1.15 * layer), 0, "#c06a1b", 1.6)
    figure.subplots_adjust(wspace=0.05)
    return figure


def draw_streams():
    """A corpus cut into streams, which are read in blocks: what is carried, and where gradients stop."""
    figure, (axes,) = _axes(10.5, 3.6)
    streams, blocks, width, height, gap = 3, 4, 2.9, 0.55, 0.25
    axes.text(0, 2.95, "corpus", fontsize=11, va="bottom", color=INK)
    for stream, color in enumerate(("#cfe0f5", "#d8ecd3", "#f7e2c8")):
        part = blocks * width / streams
        axes.add_patch(Rectangle((stream * part, 2.4), part, 0.45, facecolor=color, edgecolor=INK, linewidth=0.8))
        axes.text((stream + 0.5) * part, 2.62, f"stream {stream + 1}", ha="center", va="center", fontsize=9.5)
        y = 1.2 - stream * (height + gap)
        for block in range(blocks):
            current = block == 2
            axes.add_patch(
                Rectangle(
                    (block * width, y),
                    width,
                    height,
                    facecolor=color if block <= 2 else "white",
                    edgecolor=INK,
                    linewidth=2.0 if current else 0.8,
                    zorder=3 if current else 2,
                )
            )
        axes.text(-0.15, y + height / 2, f"stream {stream + 1}", ha="right", va="center", fontsize=9.5)
        axes.add_patch(
            Rectangle((0.6 * width, y), 1.4 * width, height, facecolor=MEMORY, alpha=0.55, linewidth=0, zorder=2.5)
        )
    bottom = 1.2 - 2 * (height + gap)
    for block in range(blocks):
        label = "current block" if block == 2 else f"block {block + 1}"
        axes.text((block + 0.5) * width, 1.2 + height + 0.12, label, ha="center", fontsize=9.5, color=INK)
    axes.annotate(
        "",
        (0.6 * width, bottom - 0.22),
        (2 * width, bottom - 0.22),
        arrowprops={"arrowstyle": "<->", "color": "#c06a1b"},
    )
    memory = "carried memory: attention span S\n(values only: no gradient)"
    axes.text(1.3 * width, bottom - 0.34, memory, ha="center", va="top", fontsize=9.5, color="#a35510")
    axes.annotate(
        "", (2 * width, bottom - 0.22), (3 * width, bottom - 0.22), arrowprops={"arrowstyle": "<->", "color": INK}
    )
    block_text = "block of M steps:\ngradients reach back to its start"
    axes.text(2.5 * width, bottom - 0.34, block_text, ha="center", va="top", fontsize=9.5, color=INK)
    axes.set_xlim(-1.3, blocks * width + 0.1)
    axes.set_ylim(bottom - 1.15, 3.35)
    return figure


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, draw in (("idea", draw_idea), ("streams", draw_streams)):
        save_figure(draw(), str(FOLDER / f"{name}.png"))
        print(f"Wrote {FOLDER / name}.png")
