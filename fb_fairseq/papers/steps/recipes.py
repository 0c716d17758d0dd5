"""All recipes by their names, and those in files of one's own."""

import os
import runpy

from fb_fairseq.errors import UserError, choose, debugging
from fb_fairseq.papers import toy_tasks
from fb_fairseq.papers.experiments import (
    bytes_and_letters,
    char_ptb,
    persistent_memory,
    summarization,
    wikitext103,
    wikitext103_tables,
)
from fb_fairseq.papers.experiments.translation import IWSLT14_DE_EN, IWSLT14_LINES, WMT14_EN_DE, WMT14_LINES
from fb_fairseq.papers.steps import (
    Recipe,
    agents,
    corpora,
    labels,
    language_modeling,
    memory_composition,
    quickstart,
    tracking,
    translation,
)
from fb_fairseq.papers.toy_tasks.common import LabelsRecipe

OWN = "RECIPE"  # its name in a file of one's own


def of_task(name: str) -> Recipe:
    """The recipe of a toy task."""
    described = toy_tasks.load(name).RECIPE
    return (labels if isinstance(described, LabelsRecipe) else tracking).recipe(name, described)


PREPARE_TEXT8 = corpora.prepare_bytes("text8", bytes_and_letters.TEXT8_MD5)
LANGUAGE_MODELS = (
    (char_ptb.CHAR_PTB, corpora.prepare_ptb),
    (bytes_and_letters.ENWIK8, corpora.prepare_bytes("enwik8", bytes_and_letters.ENWIK8_MD5)),
    (bytes_and_letters.TEXT8, PREPARE_TEXT8),
    (persistent_memory.PERSISTENT_MEMORY, PREPARE_TEXT8),
    (wikitext103.WIKITEXT103, corpora.prepare_wikitext),
    (wikitext103_tables.WIKITEXT103_ABLATION, corpora.prepare_wikitext),
    (wikitext103_tables.WIKITEXT103_TRAINING_TIME, corpora.prepare_wikitext),
    (wikitext103_tables.WIKITEXT103_END_OF_LINE, corpora.prepare_wikitext),
)
TRANSLATIONS = (
    (IWSLT14_DE_EN, corpora.prepare_pair(IWSLT14_DE_EN.pair, IWSLT14_LINES)),
    (WMT14_EN_DE, corpora.prepare_pair(WMT14_EN_DE.pair, WMT14_LINES, joined_dictionary=True)),
    (summarization.CNN_DM, corpora.prepare_cnn_dm),
)
OF_TEXT = {
    **{setting.name: language_modeling.recipe(setting, prepare) for setting, prepare in LANGUAGE_MODELS},
    **{setting.name: translation.recipe(setting, prepare) for setting, prepare in TRANSLATIONS},
}
RECIPES: dict[str, Recipe] = {
    "quickstart": quickstart.RECIPE,
    **OF_TEXT,
    "corridor": agents.recipe(
        "corridor",
        "remember a colour from the start to the end; success by memory size (v3 §4.1.1, Figure 3)",
        ("feedback", "transformer"),
        ((4, 8, 16), (5, 10, 20, 50, 100, 200)),
    ),
    "maze": agents.recipe(
        "maze",
        "find objects of eight colours and remember where they are (v3 §4.2.2, §7.2); small: 7 x 7 cells",
    ),
    "maze_easy": agents.recipe(
        "maze_easy", "the maze with four moves and no orientation (v3 §7.2); small: 7 x 7 cells"
    ),
    "water_maze": agents.recipe(
        "water_maze", "find the goal again by the names of cells (v3 §7.3, v1 §4.4); small: 7 x 7 cells"
    ),
    "memory_composition": memory_composition.recipe(of_task("blocked_random_walk"), OF_TEXT["char_ptb"]),
}


def names() -> list[str]:
    """The names of all recipes."""
    return [*RECIPES, *toy_tasks.names()]


def find(name: str) -> Recipe:
    """The recipe of this name, or the one in this file."""
    if name.endswith(".py"):
        return from_file(name)
    if name in toy_tasks.names():
        return of_task(name)
    if name not in RECIPES:
        raise UserError(f"{name}: unknown recipe; {choose(name, names())}")
    return RECIPES[name]


def from_file(path: str) -> Recipe:
    """The recipe in a file of one's own, whose variable RECIPE it is."""
    if not os.path.isfile(path):
        raise UserError(f"{path}: no such file; give the file of a recipe, or the name of one")
    try:
        found = runpy.run_path(path).get(OWN)
    except Exception as error:
        if debugging():
            raise
        raise UserError(f"{path}: {type(error).__name__}: {error}; FB_FAIRSEQ_DEBUG=1 shows where") from None
    if not isinstance(found, Recipe):
        raise UserError(f"{path}: has no variable {OWN} with a recipe; docs/recipes.md shows one")
    return found
