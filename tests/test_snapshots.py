"""Options, architectures, figures, the explorer's page and pictures, and toy tasks' sequences are as they were;
``golden/snapshots.py`` says how to change them.
"""

import pytest

from tests.golden.snapshots import NEEDS, SNAPSHOTS, texts_of, written

TITLES = [(name, title) for name in SNAPSHOTS for title in written(name)]


@pytest.mark.parametrize("name,title", TITLES, ids=[f"{name}: {title}" for name, title in TITLES])
def test_as_before(name, title):
    for package in NEEDS[name]:
        pytest.importorskip(package)
    assert list(texts_of(name)) == list(written(name)), "new ones, or others are missing"
    assert texts_of(name)[title].splitlines() == written(name)[title].splitlines()
