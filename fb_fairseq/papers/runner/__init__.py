"""Recipes: experiments from their data to their figures (``python -m fb_fairseq recipe``).

A recipe runs the commands of fairseq and of this package as processes, as a person would type them; ``--print`` shows
them. What is done is not repeated, so that a recipe that was stopped goes on where it was.

    command.py        the list of recipes, and the command
    sweep.py          the engine: runs, steps and figures of an experiment
    settings.py       the settings of experiments, as data
    language_modeling.py, translation.py, labels.py   the steps of these kinds of experiments; labels: toy tasks
    options.py        command lines
    data.py, text.py  the step prepare
    training.py       fairseq-train: its command, log and progress (progress.py), and with which options a model was
                      trained (trained_options.py)
    shell.py          running or printing commands; processes.py: all that run, several at a time
    machines.py       GPUs, and training on several machines
    results.py        results of runs and recipes
    figures/          results against the number of layers, or the learning rate

The experiments are in ``fb_fairseq/papers/experiments``. docs/recipes.md shows a recipe of one's own.
"""

from fb_fairseq.papers.runner.language_modeling import LanguageModeling
from fb_fairseq.papers.runner.results import draw_against
from fb_fairseq.papers.runner.settings import Model, Scale, Share, Training, change, equal_parameters
from fb_fairseq.papers.runner.translation import Translation

__all__ = [
    "LanguageModeling",
    "Model",
    "Scale",
    "Share",
    "Training",
    "Translation",
    "change",
    "draw_against",
    "equal_parameters",
]
