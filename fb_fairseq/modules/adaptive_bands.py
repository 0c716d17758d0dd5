"""The bands of adaptive input embeddings and softmax: frequent words have wide vectors, rare words narrow ones.

Baevski & Auli 2019 (arXiv 1809.10853); Grave et al. 2017 (arXiv 1609.04309). Words are numbered by falling frequency.
Cut-offs divide them into bands: the shortlist, and clusters of rarer words. From each band to the next, vectors become
narrower by a factor; a projection brings them to the model's width D.

Parameters and buffers of both (``adaptive_input.py``, ``adaptive_softmax.py``) have the names that they have in
fairseq's ``AdaptiveInput`` and ``AdaptiveSoftmax``, and their initial values are drawn in the same order: checkpoints
of either load into the other, and a seed gives the same model.
"""

from collections.abc import Sequence

from torch import Tensor


def band_widths(width: int, factor: float, bands: int) -> list[int]:
    """The width of the vectors in each band; 0 where the factor leaves none."""
    factor = min(factor, width + 1)  # (powers of larger ones may be too large for a float)
    return [int(width // factor**i) for i in range(bands)]


def band_sizes(ends: Sequence[int]) -> list[int]:
    """The number of words in each band. ``ends``: the first word after each band."""
    return [end - start for start, end in zip([0, *ends], ends)]


def words_of_band(words_M: Tensor, start: int, end: int) -> Tensor:
    """The indices of the words from ``start`` up to, not including, ``end``."""
    return ((words_M >= start) & (words_M < end)).nonzero().squeeze(1)
