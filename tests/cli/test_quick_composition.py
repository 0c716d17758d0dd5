"""``quick_composition`` gives what hydra gives."""

import hydra
import pytest
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from tests.cli import quick_composition


@pytest.mark.skipif(not hydra.__version__.startswith("1.0."), reason="hydra itself composes")
def test_choices_are_composed_once(monkeypatch):
    """Other values are set without hydra."""
    for beam in ("3", "4"):
        arguments = ["data", "--path", "model.pt", "--beam", beam]
        given = options.parse_args_and_arch(options.get_generation_parser(), arguments)
        expected = convert_namespace_to_omegaconf(given)
        with quick_composition.quick_composition():
            assert convert_namespace_to_omegaconf(given) == expected
        monkeypatch.setattr(quick_composition, "COMPOSE", None)
