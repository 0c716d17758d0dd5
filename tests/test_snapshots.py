"""Options, recipes, figures, … are as they were; ``golden/snapshots.py`` lists them, and says how to change them."""

import pytest

from tests.golden.snapshots import SNAPSHOTS, texts_of, written

TITLES = [(name, title) for name in SNAPSHOTS for title in written(name)]


@pytest.mark.parametrize("name,title", TITLES, ids=[f"{name}: {title}" for name, title in TITLES])
def test_as_before(name, title):
    for package in SNAPSHOTS[name].needs:
        pytest.importorskip(package)
    assert list(texts_of(name)) == list(written(name)), "new ones, or others are missing"
    assert texts_of(name)[title].splitlines() == written(name)[title].splitlines()
