"""Contents of a ring's slot.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

import torch
from torch import Tensor

from fb_fairseq.ops.feedback.types import Context, FeedbackOptions, FeedbackWeights, project_context


class KeyValueStorage:
    """Slots hold keys and values, projected once: [J, B, H, C, E], where J counts the keys and values of each set."""

    def stored(self, memory_KCBD: Tensor, weights: FeedbackWeights, options: FeedbackOptions) -> Tensor:
        """Memories in the form in which they are stored, slots second: [J, C, B, H, E]."""
        contexts = project_context(memory_KCBD, weights, options)
        return torch.stack([slots.to(memory_KCBD.dtype) for context in contexts for slots in context])

    def contexts(self, stored_JCBHE: Tensor, weights: FeedbackWeights, options: FeedbackOptions) -> list[Context]:
        """Keys and values of stored slots: one set, or one per layer."""
        return [Context(*pair) for pair in zip(stored_JCBHE[::2], stored_JCBHE[1::2])]


class VectorStorage:
    """Slots hold the memories alone, [K, B, C, D]; they are projected again at each step (v1 §5.3)."""

    def stored(self, memory_KCBD: Tensor, weights: FeedbackWeights, options: FeedbackOptions) -> Tensor:
        """The memories as they are."""
        return memory_KCBD

    def contexts(self, stored_KCBD: Tensor, weights: FeedbackWeights, options: FeedbackOptions) -> list[Context]:
        """Keys and values of stored slots: one set, or one per layer."""
        return project_context(stored_KCBD, weights, options)


STORAGES = {"keys-values": KeyValueStorage, "vectors": VectorStorage}
