"""Recipes: experiments from their data to their figures (``python -m fb_fairseq recipe``, command.py).

A recipe runs the commands of fairseq and of this package as processes, as a person would type them; ``--print`` shows
them. What is done is not repeated, so that a recipe that was stopped goes on where it was. sweep.py is the engine.
language_modeling.py, translation.py and labels.py (toy tasks) have the steps of these kinds of experiments, settings.py
their settings as data, options.py their command lines. data.py prepares data. training.py runs fairseq-train,
machines.py says where. shell.py runs or prints commands, processes.py has all that run; results.py and figures/ what
comes out. docs/recipes.md shows a recipe of one's own.
"""

from fb_fairseq.papers.runner.language_modeling import LanguageModeling
from fb_fairseq.papers.runner.results import draw_against
from fb_fairseq.papers.runner.settings import Model, Scale, Training, change, equal_parameters
from fb_fairseq.papers.runner.translation import Translation

__all__ = [
    "LanguageModeling",
    "Model",
    "Scale",
    "Training",
    "Translation",
    "change",
    "draw_against",
    "equal_parameters",
]
