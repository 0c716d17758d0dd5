"""Toy tasks, the papers' (arXiv 2002.09402, Table 1) and others: tasks that need a state or a memory. Each file is a
task, with its generator, options and recipe, and is found by its name: ``fb-fairseq synthetic-tasks`` lists
them. ``common/`` has what they are made of, and the command. docs/recipes.md adds a task. In comments, "v1" and "v3"
are versions of the paper on arXiv. Needs neither torch nor fairseq.
"""

import importlib
import pkgutil
from types import ModuleType


def names() -> list[str]:
    """The names of all tasks."""
    return [found.name for found in pkgutil.iter_modules(__path__) if not found.ispkg]


def load(name: str) -> ModuleType:
    """The module of a task, with its ``TASK`` and its ``RECIPE``."""
    return importlib.import_module(f"{__name__}.{name}")
