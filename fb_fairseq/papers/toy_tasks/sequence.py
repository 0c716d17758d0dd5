"""The type of all generated data."""

from typing import List, NamedTuple

NO_LABEL = "_"  # label of a symbol that is not evaluated; must equal fb_fairseq.streams.fairseq.labels.IGNORED


class LabelledSequence(NamedTuple):
    """A sequence of input symbols, and one label for each of them."""

    inputs: List[str]
    labels: List[str]
