"""Figures: one style for all of them, axes that say what they show, and pictures that a README can show."""

import ast
import functools
import importlib
import json
import runpy
from functools import partial
from pathlib import Path

import pytest

from fb_fairseq.drawing.figure import Panel, build_figure, draw_figure
from fb_fairseq.drawing.marks import RANGE, draw_band
from fb_fairseq.drawing.models import MODEL_COLORS, colors, model_name, styles
from fb_fairseq.drawing.style import AMBER, BLUE, CYCLE, DPI, GREEN, GREY, PURPLE, STYLE, TINY, VERMILLION, WIDTH
from fb_fairseq.papers.figures import against, state_tracking
from fb_fairseq.papers.results.runs import grouped
from fb_fairseq.papers.rl.log import draw_rewards
from tests.conftest import REPOSITORY
from tests.drawn_figures import cases

style = pytest.importorskip("matplotlib.style")
Image = pytest.importorskip("PIL.Image")

MAKE_FIGURES = REPOSITORY / "docs/make_figures.py"
FIGURES = runpy.run_path(str(MAKE_FIGURES))["FIGURES"]
PICTURES = sorted(path.relative_to(REPOSITORY) for path in REPOSITORY.glob("*/figures/*.png"))
CODE = [path for folder in ("fb_fairseq", "examples", "docs") for path in (REPOSITORY / folder).rglob("*.py")]
PIXELS = round(WIDTH * DPI)
PACKAGES = {"matplotlib": "matplotlib", "pillow": "PIL"}
LARGEST, LARGEST_OF_PAGES = 100_000, 300_000  # bytes of a figure, and of a picture of a page in the browser
RESULT = {"recipe": "r", "model": "feedback", "layers": 2, "lr": 0.1, "seed": 1, "accuracy": 99.0}
TRACKED = json.loads((REPOSITORY / "examples/results/state_tracking/A5_mixed/results.json").read_text()).values()
# One of each kind.
DRAWN = {panels[0].draw.func: panels[0].draw for panels in reversed(cases().values()) if len(panels) == 1}
DIAGRAMS = {"diagrams.draw_transformer", "diagrams.draw_feedback", "diagrams.draw_streams"}


@functools.cache
def trees():
    """The syntax of all modules that may draw."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in CODE if path.parent.name != "drawing"}


def test_every_function_that_draws_is_here():
    found = {
        f"{path.stem}.{node.name}"
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("draw") and node.args.args[:1]
        if node.args.args[0].arg == "axes"
    }
    assert found == {*(f"{Path(draw.__code__.co_filename).stem}.{draw.__name__}" for draw in DRAWN), *DIAGRAMS}


@pytest.mark.parametrize("draw", DRAWN.values(), ids=[draw.__name__ for draw in DRAWN])
def test_axes_have_labels(draw):
    """And the legend does not hide data, alone or beside another panel; no text is too small to be read."""
    for number in 1, 2:
        with style.context(["default", STYLE]):
            figure = build_figure([Panel(draw)] * number)
            figure.draw_without_rendering()
        axes = figure.axes[0]
        assert axes.get_xlabel() and axes.get_ylabel()
        for legend in filter(None, [*(each.get_legend() for each in figure.axes), *figure.legends]):
            assert not any(legend.get_window_extent().padded(-1).overlaps(each.bbox) for each in figure.axes)
        texts = [text for text in figure.findobj(lambda artist: hasattr(artist, "get_fontsize")) if text.get_text()]
        assert min(text.get_fontsize() for text in texts) >= TINY


def test_a_model_has_its_color_in_all_figures():
    names = ["Feedback Transformer", "relative_transformer_lm-2", "LSTM, 2 layers", "all_attention_lm", "mine", "xLSTM"]
    found = colors(names)
    expected = [BLUE, VERMILLION, GREEN, PURPLE, AMBER, GREY]
    assert list(found.values()) == expected
    assert colors(["a", "Transformer", "Feedback"])["Feedback"] == BLUE
    assert colors(["all-attn", "all-attention"])["all-attn"] == PURPLE
    shades = list(colors([f"Feedback, {n} layers" for n in range(4)]).values())
    assert shades[0] == BLUE and len(set(shades)) == 4
    drawn = styles(["Feedback", "Feedback, fine-tuned", "LSTM"])
    panel = Panel(lambda axes: [draw_band(axes, [1], [[2]], name, *style) for name, style in drawn.items()])
    assert [line.get_linestyle() for line in build_figure([panel]).axes[0].lines] == ["-", "--", "-"]


def test_the_legend_explains_bands_and_lines():
    panel = Panel(partial(state_tracking.draw_accuracy, settings=state_tracking.best_results(TRACKED)))
    legend = build_figure([panel]).axes[0].get_legend_handles_labels()[1]
    assert {"LSTM", "chance: 1.7%", "longest in training: 32", RANGE} <= set(legend)
    runs = [{**RESULT, "projections": "shared"}, *({**RESULT, "model": "transformer", "seed": seed} for seed in (1, 2))]
    axes = build_figure(against.panels(grouped(runs), "layers", ["accuracy"])).axes[0]
    assert axes.get_legend_handles_labels()[1] == ["Feedback Transformer", "Transformer", RANGE]


@pytest.mark.parametrize("number", [1, len(CYCLE), 20])
@pytest.mark.parametrize("known", [[], list(MODEL_COLORS)])
def test_more_names_than_colours(number, known):
    """Each has a colour of its own, beside any of the known models, or all of them."""
    found = colors([*known, *(f"run{i}" for i in range(number))])
    assert len(found) == number + len(known)
    assert len({found[name] for name in found if name.startswith("run")}) == number
    for name in known[:1]:
        assert found[name] == MODEL_COLORS[name]


@pytest.mark.parametrize(
    "run,words",
    [
        ("feedback_transformer_lm-2", "Feedback Transformer, 2 layers"),
        ("relative_transformer_lm-span8-1-seed3", "Transformer, span 8, 1 layer, seed 3"),
        ("lstm-lr0.003-seed1", "LSTM, learning rate 0.003, seed 1"),
        ("feedback-12-lr1e-05", "Feedback Transformer, 12 layers, learning rate 1e-05"),
        ("all_attention_lm", "all-attention"),
        ("feedback-mine", "feedback-mine"),
        ("my run-2", "my run-2"),
    ],
)
def test_models_are_called_as_readers_call_them(run, words):
    assert model_name(run) == words
    axes = build_figure([Panel(partial(draw_rewards, curves={run: [[(1, 10.0), (2, 20.0)]]}))]).axes[0]
    assert axes.get_legend_handles_labels()[1] == [words]


def test_panels_stand_in_rows(tmp_path):
    """Two in a row; a wide one, and the last of an odd number, take all of it. The width is the README's."""

    def draw(axes):
        axes.plot([1, 2], [1, 2])

    figure = build_figure([Panel(draw), Panel(draw), Panel(draw, wide=True), Panel(draw)])
    places = [axes.get_subplotspec() for axes in figure.axes]
    assert [(place.rowspan.start, len(place.colspan)) for place in places] == [(0, 1), (0, 1), (1, 2), (2, 2)]
    for size, width in ((0, 0), PIXELS), ((12, 2), 12 * DPI):
        draw_figure(str(tmp_path / "x.png"), [Panel(draw, size=size)], title="a $ title")
        image = Image.open(tmp_path / "x.png")
        assert image.width == width
    draw_figure(str(tmp_path / "x.pdf"), [Panel(draw)])
    assert (tmp_path / "x.pdf").read_bytes().startswith(b"%PDF")


def test_panels_with_the_same_legend_share_it():
    def draw(axes, label="a"):
        axes.plot([1, 2], [1, 2], label=label)

    figure = build_figure([Panel(draw), Panel(draw)])
    assert len(figure.legends) == 1 and not any(axes.get_legend() for axes in figure.axes)
    figure = build_figure([Panel(draw), Panel(partial(draw, label="b" * 99))])
    assert not figure.legends and all(axes.get_legend() for axes in figure.axes)


@pytest.mark.parametrize("path", PICTURES, ids=str)
def test_pictures(path):
    """As wide as a README, small, and on white: text would vanish on a transparent background of either kind."""
    image = Image.open(REPOSITORY / path)
    is_page = path.stem.startswith("explore")  # in full colour: few colours would change the meaning of its scales
    assert (REPOSITORY / path).stat().st_size < (LARGEST_OF_PAGES if is_page else LARGEST)
    assert is_page or image.width == PIXELS
    assert "transparency" not in image.info and image.mode == ("RGB" if is_page else "P")
    rgb = image.convert("RGB")
    edges = [(x, y) for x in (0, rgb.width - 1) for y in (0, rgb.height - 1)]
    assert {rgb.getpixel(place) for place in edges} == {(255, 255, 255)}


@pytest.mark.on_ci
def test_figures_are_those_of_the_results(tmp_path):
    """``docs/make_figures.py`` draws the same pictures."""
    pinned = (REPOSITORY / "examples/constraints/python3.10.txt").read_text().split()
    versions = {f"{name}=={importlib.import_module(module).__version__}" for name, module in PACKAGES.items()}
    runpy.run_path(str(MAKE_FIGURES))["main"](tmp_path)
    for name in FIGURES:
        old, new = (Image.open(folder / name).convert("RGB") for folder in (REPOSITORY, tmp_path))
        assert old.size == new.size
        # (Other versions may place letters differently.)
        assert old.tobytes() == new.tobytes() or not versions <= set(pinned), f"{name}: run python docs/make_figures.py"
