"""The parts of a task's file.

sequences.py   sequences, and the random numbers that they are drawn with
task.py        a task and its options
recipe.py      how models are trained on it
command.py     ``fb-fairseq synthetic-tasks``
"""

from fb_fairseq.papers.toy_tasks.common.recipe import LabelsRecipe, TrackingRecipe
from fb_fairseq.papers.toy_tasks.common.sequences import NO_LABEL, LabelledSequence, SeededRandom, with_output
from fb_fairseq.papers.toy_tasks.common.task import Growth, Option, Task

__all__ = [
    "Growth",
    "LabelledSequence",
    "LabelsRecipe",
    "NO_LABEL",
    "Option",
    "SeededRandom",
    "Task",
    "TrackingRecipe",
    "with_output",
]
