"""Hand-drawn figures of the pages: what a step attends to (docs/figures/idea.png), and streams (streams.png).

``make_figures.py`` draws them.
"""

from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

from fb_fairseq.drawing.models import tint
from fb_fairseq.drawing.style import BLUE, GREY, INK, VERMILLION, WHITE

PAST_COLOR, NOW_COLOR, MEMORY_COLOR = tint(GREY, 0.85), tint(GREY, 0.55), tint(BLUE, 0.6)
STREAM_COLORS = (tint(GREY, 0.85), tint(GREY, 0.7), tint(GREY, 0.55))
LAYERS, STEPS = 3, 4
STEP, LAYER = 1.7, 1.15  # distances between two steps, and between two layers
BOX = (1.1, 0.5)  # width and height


def _box(axes, x: float, y: float, color: str, text: str) -> None:
    """A box with a text in its middle, which is at (x, y)."""
    width, height = BOX
    shape = FancyBboxPatch((x - width / 2, y - height / 2), width, height, boxstyle="round,pad=0,rounding_size=0.08")
    shape.set(facecolor=color, edgecolor=INK, linewidth=0.8)
    axes.add_patch(shape)
    axes.text(x, y, text, ha="center", va="center")


def _arrow(
    axes,
    start: tuple[float, float],
    end: tuple[float, float],
    *,
    bend: float = 0.0,
    color: str = INK,
    width: float = 1.1,
    style: str = "-|>",
) -> None:
    """An arrow between two points, on an arc if ``bend`` is not 0; ``width`` in points, ``style`` as in matplotlib."""
    shape = {"connectionstyle": f"arc3,rad={bend}", "arrowstyle": style, "mutation_scale": 9}
    axes.add_patch(FancyArrowPatch(start, end, color=color, linewidth=width, shrinkA=0, shrinkB=0, **shape))


def _columns(axes, title: str) -> None:
    """Layers of the steps t-3 … t, the inputs below them."""
    axes.set_aspect("equal")
    axes.axis("off")
    for step in range(STEPS):
        now = step == STEPS - 1
        for layer in range(LAYERS):
            _box(axes, STEP * step, LAYER * layer, NOW_COLOR if now else PAST_COLOR, f"layer {layer + 1}")
            if layer:
                _arrow(axes, (STEP * step, LAYER * layer - 0.9), (STEP * step, LAYER * layer - 0.25))
        past = STEPS - 1 - step
        axes.text(STEP * step, -1.0, "$x_t$ (now)" if now else f"$x_{{t-{past}}}$", ha="center", va="center")
        _arrow(axes, (STEP * step, -0.8), (STEP * step, -0.25))
    axes.set_title(title)
    axes.set_anchor("S")
    axes.set_xlim(-0.6, STEP * STEPS - 1.05)
    axes.set_ylim(-1.2, 4.2)


def draw_transformer(axes) -> None:
    """What a step attends to in a Transformer (v3 Figure 2)."""
    _columns(axes, "Transformer: each layer attends to\nits own past inputs")
    now = STEP * (STEPS - 1)
    for layer in range(LAYERS):
        for step in range(STEPS - 1):
            # From what the past layer reads, below the boxes between.
            between = STEPS - 2 - step
            bend = 0.02 + 0.06 * between
            start = (STEP * step, LAYER * layer - 0.38 - 0.09 * between)
            end = (now - 0.45, LAYER * layer - 0.27)
            _arrow(axes, start, end, bend=bend, color=VERMILLION)


def draw_feedback(axes) -> None:
    """What a step attends to in a Feedback Transformer (v3 Figure 2)."""
    _columns(axes, "Feedback Transformer: all layers attend to\none memory of each step")
    now = STEP * (STEPS - 1)
    for step in range(STEPS - 1):
        past = STEPS - 1 - step
        _box(axes, STEP * step, 3.55, MEMORY_COLOR, f"$m_{{t-{past}}}$")
        for layer in range(-1, LAYERS):  # the embedding, then the layers
            start = (STEP * step + 0.55, LAYER * layer + 0.1) if layer >= 0 else (STEP * step + 0.35, -0.95)
            bend = 0.12 + 0.035 * (LAYERS - layer)
            _arrow(axes, start, (STEP * step + 0.3, 3.3), bend=bend, color=BLUE, width=0.9)
        axes.plot([STEP * step, STEP * step], [3.8, 4.1], color=BLUE, linewidth=1.6)
    rail = STEP * (STEPS - 2) + 0.98  # the memories are read along one line above them and beside the current step
    axes.plot([0.0, rail, rail], [4.1, 4.1, 0.0], color=BLUE, linewidth=1.6)
    for layer in range(LAYERS):
        _arrow(axes, (rail, LAYER * layer), (now - 0.55, LAYER * layer), color=BLUE, width=1.6)


def draw_streams(axes) -> None:
    """A corpus cut into streams, which are read in blocks: what is carried, and where gradients stop."""
    axes.set_aspect("equal")
    axes.axis("off")
    blocks, width, height, gap = 4, 2.9, 0.6, 0.25
    axes.text(-0.15, 2.62, "corpus", ha="right", va="center")
    for stream, color in enumerate(STREAM_COLORS):
        part = blocks * width / len(STREAM_COLORS)
        axes.add_patch(Rectangle((stream * part, 2.35), part, 0.55, facecolor=color, edgecolor=INK, linewidth=0.8))
        axes.text((stream + 0.5) * part, 2.62, f"stream {stream + 1}", ha="center", va="center")
        y = 1.0 - stream * (height + gap)
        for block in range(blocks):
            current = block == 2
            shape = Rectangle((block * width, y), width, height, facecolor=color if block <= 2 else WHITE)
            shape.set(edgecolor=INK, linewidth=2.0 if current else 0.8, zorder=3 if current else 2)
            axes.add_patch(shape)
        axes.text(-0.15, y + height / 2, f"stream {stream + 1}", ha="right", va="center")
        carried = Rectangle((0.6 * width, y + 0.03), 1.4 * width, height - 0.06, facecolor=MEMORY_COLOR, zorder=2.5)
        axes.add_patch(carried)
    bottom = 1.0 - 2 * (height + gap) - 0.2
    for block in range(blocks):
        label = "current block" if block == 2 else f"block {block + 1}"
        axes.text((block + 0.5) * width, 1.0 + height + 0.15, label, ha="center")
    for start, end, color, text in (
        (0.6, 2.0, BLUE, "carried memory: span S\n(values only: no gradient)"),
        (2.0, 3.0, INK, "block of M steps: gradients\nreach back to its start"),
    ):
        _arrow(axes, (start * width, bottom), (end * width, bottom), color=color, style="<->")
        axes.text((start + end) / 2 * width, bottom - 0.15, text, ha="center", va="top", color=color)
    axes.set_xlim(-1.5, blocks * width + 0.05)
    axes.set_ylim(bottom - 0.9, 3.0)
