"""The memory of a call of a language model, and what becomes of it after the call."""

from typing import NamedTuple

from torch import Tensor

from fb_fairseq.errors import UserError
from fb_fairseq.streams.state import StateHandle
from fb_fairseq.transformers.cache import StreamCache
from fb_fairseq.transformers.configuration import LanguageModelConfig
from fb_fairseq.transformers.inputs import given_cache
from fb_fairseq.transformers.streams import StreamKey


class CallMemory(NamedTuple):
    """The memory of a call.

    Attributes:
        cache: the memory, which the call updates.
        is_returned: whether the call returns it, so that others can go on with it.
        block: where its state goes after a block of streams; None: the texts are no streams.
        texts_may_end: whether texts may be padded at the end, because no call goes on with them.
    """

    cache: StreamCache
    is_returned: bool
    block: StateHandle | None = None
    texts_may_end: bool = False

    def end_texts(self) -> None:
        """Note that texts are padded at the end, so that they cannot go on."""
        if not self.texts_may_end:
            raise UserError("attention_mask: has padding at the end; pad on the left (padding_side='left')")
        self.cache.ended = True

    def add(self, tokens_BT: Tensor | None, steps: int) -> None:
        """Note that tokens have been read.

        Args:
            tokens_BT: the tokens; None: they are not known.
            steps: their number in each text, T.
        """
        if self.is_returned:
            self.cache.text.add(tokens_BT)
        if self.block is not None:
            self.block.write(self.cache.state, steps)


def open_memory(
    config: LanguageModelConfig,
    past_key_values: StreamCache | StreamKey | None,
    cache: StreamCache | None,
    *,
    use_cache: bool | None,
    texts: int,
    training: bool,
    trains: bool,
) -> CallMemory:
    """The memory of a call: the one that it is given, that of a block of streams, or a new one.

    Args:
        config: the model's.
        past_key_values, cache: see ``LanguageModel.forward``.
        use_cache: whether the call is to return a memory that goes on; None: as the configuration says. A model that is
            being trained returns none.
        texts: number of texts in the call, B.
        training: whether the model is in training mode.
        trains: whether there will be gradients, too.
    """
    block = None
    if isinstance(past_key_values, StreamKey):
        block = past_key_values.open(texts, training)
        past_key_values = StreamCache(None, block.read(), block.offset)
    given = given_cache(StreamCache, past_key_values, cache)
    if given is not None:
        return CallMemory(given, is_returned=True, block=block)
    remembers = config.use_cache if use_cache is None else use_cache
    new = StreamCache(config.memory_storage)
    return CallMemory(new, is_returned=bool(remembers) and not trains, texts_may_end=trains or not use_cache)
