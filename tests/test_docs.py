"""The pages: their links lead somewhere, and the commands that they name exist."""

import re

import pytest

from fb_fairseq.commands import COMMANDS, FAIRSEQ_COMMANDS
from fb_fairseq.packages import EXTRAS
from tests.conftest import REPOSITORY

PATTERNS = ("*.md", "docs/**/*.md", "examples/**/*.md")
PAGES = sorted(path.relative_to(REPOSITORY) for pattern in PATTERNS for path in REPOSITORY.glob(pattern))
LINK = re.compile(r"\]\(([^)#\s]*)(#[^)\s]*)?\)")


def anchors(path):
    """GitHub's names of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {"#" + re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links(page):
    for target, anchor in LINK.findall((REPOSITORY / page).read_text(encoding="utf-8")):
        if "://" in target:
            continue
        path = (REPOSITORY / page).parent / target if target else REPOSITORY / page
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), f"{target}{anchor}"


def test_pictures_have_texts():
    """For those who cannot see them: what each shows, in words, with what was found."""
    shown = set()
    for page in PAGES:
        content = (REPOSITORY / page).read_text(encoding="utf-8")
        for text, target in re.findall(r"!\[([^\]]*)\]\(([^)]+\.(?:png|gif))\)", content):
            shown.add((REPOSITORY / page).parent.joinpath(target).resolve())
            assert len(text.split()) > 12, f"{page}: {target}"
    assert shown == set(REPOSITORY.glob("*/figures/*"))


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_commands_exist(page):
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    names = set(re.findall(r"(?:python -m fb_fairseq|fb-fairseq) ([a-z][a-z_-]+)", text))
    assert {name.replace("_", "-") for name in names} <= {*COMMANDS, *FAIRSEQ_COMMANDS}
    for script in re.findall(r"bash ((?:examples|tests)/[\w/.-]+\.sh)", text):
        assert (REPOSITORY / script).exists(), script


def test_extras():
    """The README lists those that commands name, which setup.py has."""
    (sentence,) = re.findall(r"^Extras: .*?\n\n", (REPOSITORY / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    listed = re.findall(r"`([\w-]+)` \(", sentence)
    setup = (REPOSITORY / "setup.py").read_text(encoding="utf-8")
    assert set(listed) == set(EXTRAS.values()) and all(f'"{extra}": [' in setup for extra in listed)


def test_readme_is_short():
    assert len((REPOSITORY / "README.md").read_text(encoding="utf-8").splitlines()) <= 130


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_no_placeholders(page):
    assert not re.search(r"\b(TABLE|MACHINE|TIME|TODO|FIXME)\b", (REPOSITORY / page).read_text(encoding="utf-8"))
