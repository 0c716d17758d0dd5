"""The base class of the models: what all of them tell transformers."""

from typing import Any

import torch.nn as nn
from transformers import GenerationMixin, PreTrainedModel

from fb_fairseq.errors import UserError
from fb_fairseq.modules.language_model import OutputLayer


class MemoryModel(PreTrainedModel, GenerationMixin):
    """Base of the models: what all of them tell transformers.

    Attributes:
        decoder: embeddings, a stack of layers with memory, and the output layer.
    """

    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    gradient_checkpointing = False
    _is_stateful = True  # refuses assisted decoding, which would have to forget steps
    decoder: OutputLayer

    def _init_weights(self, module: nn.Module) -> None:
        """Modules have initialised their parameters themselves, as the papers do."""

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # ``forward`` makes the cache

    def get_output_embeddings(self) -> nn.Module | None:
        """The output layer; None with an adaptive softmax."""
        return self.decoder.output_projection

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Put another embedding of the same size in the place of ``get_input_embeddings()``."""
        self._replace("set_input_embeddings", self.get_input_embeddings(), value)

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        """Put another output layer of the same size in the place of ``get_output_embeddings()``."""
        self._replace("set_output_embeddings", self.get_output_embeddings(), new_embeddings)

    def _replace(self, method: str, old: nn.Module | None, new: nn.Module) -> None:
        """Put a module in the place of another one."""
        shape = getattr(getattr(old, "weight", None), "shape", None)
        if shape is None or self.config.has_tied_words():
            raise UserError(f"{method}: not with adaptive or shared words (see {self.config.tying}); take base_model")
        if getattr(getattr(new, "weight", None), "shape", None) != shape:
            raise UserError(f"{method}: the weight's shape must be {tuple(shape)}; for another size take base_model")
        for part in list(self.modules()):
            for name, child in list(part.named_children()):
                if child is old:
                    setattr(part, name, new)

    def init_continuous_batching(self, *_: Any, **__: Any) -> Any:
        """Not possible, nor is ``generate_batch``, which calls it: it gives out pages of keys and values."""
        raise UserError(
            "generate_batch: these models have a memory of their own, which continuous batching cannot page; call "
            "generate with a padded batch"
        )

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, pad_to_multiple_of: int | None = None, *_, **__
    ) -> nn.Module:
        """The embedding, of the size that it has: the dictionary is that of the training data."""
        size = getattr(self.config, "source_vocab_size", self.config.vocab_size)
        if new_num_tokens in (None, size) and size % (pad_to_multiple_of or 1) == 0:
            return self.get_input_embeddings()
        raise UserError("resize_token_embeddings: the vocabulary is that of the training data, and cannot be changed")


def tied_names(model: nn.Module) -> dict:
    """The parameters that are the same as others, by name; the first embedding's name stands for all."""
    names: dict = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    tied = {}
    for same in names.values():
        source = next((name for name in same if ".embed_tokens." in name), same[0])
        tied.update({name: source for name in same if name != source})
    return tied
