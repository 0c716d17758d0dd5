"""Base class of decoders that own a stack."""

from typing import TypeVar

import torch.nn as nn

from fb_fairseq.errors import UserError
from fb_fairseq.modules.interface import Stack

Holder = TypeVar("Holder", bound="StackHolder")


class StackHolder(nn.Module):
    """A decoder whose layers, memory, positions and norm belong to a stack.

    ``self.stack`` computes everything between embeddings and output layer. Its modules are registered on the decoder
    itself, so that parameters carry fairseq's names (``decoder.layers.0.…``, not ``decoder.stack.layers.0.…``) and a
    vanilla Transformer's checkpoint loads by name. The stack itself is therefore no child module, only an attribute.
    Its modules must not be replaced on the decoder alone: the stack would keep the old ones.
    """

    stack: Stack

    def hold(self, stack: Stack) -> None:
        """Take a stack; once, in the constructor."""
        for name, module in stack.named_children():
            self.add_module(name, module)
        object.__setattr__(self, "stack", stack)  # nn.Module's own would register it

    def train(self: Holder, mode: bool = True) -> Holder:
        """Set training or evaluation mode, of the stack too."""
        super().train(mode)
        self.stack.train(mode)
        return self

    def make_generation_fast_(self, retain_dropout: bool = False, **unused) -> None:
        """Take fairseq's call before generation; there is nothing to do.

        Args:
            retain_dropout: ``--retain-dropout``, which is refused.
            unused: fairseq's other options of generation.
        """
        if retain_dropout:
            raise UserError("--retain-dropout: this model has dropout in training only; leave it out")
