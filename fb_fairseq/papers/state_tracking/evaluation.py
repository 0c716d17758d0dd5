"""Accuracy of a trained model by the size of its sequences, up to several times those in training, and its mistakes."""

from typing import Any

import torch

from fb_fairseq.papers.state_tracking.bodies import Tagger
from fb_fairseq.papers.state_tracking.options import FACTOR, OTHER_FACTOR, Options
from fb_fairseq.papers.state_tracking.problems import NO_TARGET, Sequences

# Sizes of tests, but for word problems, as multiples of the longest in training.
FACTORS = (0.25, 0.5, 1, 2, OTHER_FACTOR)
TOKENS = 16_384  # of a batch
GOOD = 0.9  # the lowest accuracy that ``longest_good`` counts as good


@torch.no_grad()
def evaluate(model: Tagger, sequences: Sequences, options: Options, split: str = "test") -> dict[str, Any]:
    """Test a model on sequences it was not trained on.

    Args:
        model: what is tested; is in eval mode afterwards.
        sequences: those of its task.
        options: as of its training.
        split: "test", or "valid", whose sequences all have the largest size in training.

    Returns:
        "sizes", and the "accuracy" at each: for word problems of the label at this position, for the other tasks of all
        labels in sequences of this size. Of the longest sequences: "flawless", the share without a mistake, and
        "slips", the probability that a label is the first wrong one of its sequence.
    """
    model.eval()
    growth = sequences.growth
    valid = split == "valid"
    if growth.by_position:
        longest = options.longest * (1 if valid else FACTOR)
        right_BL, labelled_BL = _right(model, *sequences.draw(split, 0, longest, options.test_sequences))
        sizes = list(range(1, longest + 1))
        accuracy = right_BL.float().mean(0).tolist()
    else:
        factors = [1] if valid else FACTORS
        sizes = sorted({max(growth.smallest, int(factor * options.longest)) for factor in factors})
        accuracy = []
        for number, size in enumerate(sizes):  # up to the longest
            right_BL, labelled_BL = _right(model, *sequences.draw(split, number, size, options.test_sequences))
            accuracy.append(right_BL[labelled_BL].float().mean().item())
    wrong_BL = labelled_BL & ~right_BL
    slipped = wrong_BL.any(1).sum().item()
    before = (labelled_BL & (wrong_BL.cumsum(1) == 0)).sum().item()
    flawless = 1 - slipped / len(wrong_BL)
    slips = slipped / (slipped + before)
    return {"sizes": sizes, "accuracy": accuracy, "flawless": flawless, "slips": slips}


def _right(model: Tagger, inputs_BL: torch.Tensor, labels_BL: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Two masks [B, L]: the labels that the model has right, and the steps that have a label."""
    device = next(model.parameters()).device
    batch = max(1, TOKENS // inputs_BL.shape[1])
    found_BL = torch.cat([model(part.to(device)).argmax(-1) for part in inputs_BL.split(batch)])
    labels_BL = labels_BL.to(device)
    return found_BL == labels_BL, labels_BL != NO_TARGET


def longest_good(sizes: list[int], accuracy: list[float]) -> int:
    """The largest size up to which the accuracy is at least ``GOOD`` everywhere; 0: it is not even at the first."""
    good = 0
    for size, value in zip(sizes, accuracy):
        if value < GOOD:
            break
        good = size
    return good
