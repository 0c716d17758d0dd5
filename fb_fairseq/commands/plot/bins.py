"""Ranges of distances and of contexts that double in width."""


def doubling_bins(longest: int) -> list[tuple[int, int]]:
    """First and last of 1, 2, 3 to 4, 5 to 8, …, up to ``longest``."""
    return [(1, 1)] + [(2**i + 1, min(2 ** (i + 1), longest)) for i in range((longest - 1).bit_length())]
