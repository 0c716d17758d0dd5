"""Results and settings of the papers, as data: ``results.json`` and ``hyperparameters.json``.

``results.json`` is a list of tables. A table has the paper's version and number (``table``), its section (``where``), a
``title``, the recipe that repeats it (``recipe``, the name in ``results.json`` of a recipe's output) and its
``metrics`` with their units or headings; a row has the paper's name for the model, its figures by metric, and what our
run of it is called: ``match`` has the fields of the run, ``small`` those that differ with ``--small``. Rows without
``match`` are other people's models, or have no recipe.

``hyperparameters.json`` has the papers' settings by table or section, in the papers' units; null where the paper says
nothing. Tests compare the named architectures and the recipes with it.

"v1" and "v3" are versions of arXiv 2002.09402, "all-attention" is arXiv 1907.01470.
"""

import json
import os
from typing import Any

FOLDER = os.path.dirname(os.path.abspath(__file__))


def load(name: str) -> Any:
    """The contents of ``results.json`` (``results``) or ``hyperparameters.json`` (``hyperparameters``)."""
    with open(os.path.join(FOLDER, f"{name}.json"), encoding="utf-8") as file:
        return json.load(file)
