"""A text that a model with random weights has read, and what a page shows of it."""

import xml.etree.ElementTree as ElementTree

from fb_fairseq.commands.explore.reading import Reading
from tests.models.language_models import SIZES

SPAN = SIZES["attention_span"]
TOKENS = [*range(4, 24), 7, 9, 5]


def reading_of(model, tokens=TOKENS):
    reading = Reading(model)
    reading.read(tokens)
    return reading


def parsed(shown):
    """A picture as an XML tree: browsers mend what is broken, and leave out what follows."""
    return ElementTree.fromstring(shown.replace("&nbsp;", " "))
