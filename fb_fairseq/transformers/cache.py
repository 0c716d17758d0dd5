"""The models' memories as transformers' ``Cache``."""

import torch
from torch import Tensor
from transformers import Cache

from fb_fairseq.errors import UserError
from fb_fairseq.modules.interface import Stack, StepMemory, StreamState
from fb_fairseq.ops.feedback.decoding import DecoderState
from fb_fairseq.ops.tracing import is_tracing
from fb_fairseq.transformers.known_text import KnownText, in_order

BLOCK_STEPS = 256  # steps of a long prompt that are run together without gradients


class MemoryCache(Cache):
    """The methods that transformers asks of a cache.

    Attributes:
        position: number of tokens read, padding included.
        texts: number of texts, B; 0 before the first token.
        device: where their memory is; None before the first token.
    """

    # Attributes that ``generate`` asks for. transformers derives them from the cache's layers; this one has none.
    is_compileable = is_croppable = False
    is_linear = is_sliding = is_dummy = (False,)
    position = texts = 0
    device: torch.device | None = None

    def __init__(self):
        super().__init__(layers=[])

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Number of tokens read."""
        return self.position

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Take the texts in another order (beam search)."""
        raise NotImplementedError

    def nbytes(self) -> int:
        """Bytes that are kept of the past."""
        raise NotImplementedError

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep some of the texts."""
        self.reorder_cache(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each text."""
        self.reorder_cache(torch.arange(self.texts, device=self.device).repeat_interleave(repeats))

    def crop(self, *_) -> None:
        """Not possible: what was read changes the memory for good."""
        raise UserError("past_key_values: a memory cannot forget its last steps (assisted decoding is not possible)")

    def __len__(self) -> int:
        return 1

    def __repr__(self) -> str:
        return f"{type(self).__name__}(position={self.get_seq_length()}, nbytes={self.nbytes()})"


class StreamCache(MemoryCache):
    """The memory of B streams: the state after a block, or the ring of decoding step by step. Its size is constant,
    however long the text is.

    ``generate`` makes one for each call. Give it to several calls of a model as ``past_key_values``, and they read one
    long text, of which each is given the new tokens. To ``generate`` give the whole text, as in transformers; or the
    tokens after those that were read, and they are the text from then on.

    Args:
        storage: what the ring keeps of each step; see ``fb_fairseq.ops.feedback.ring.STORAGES``. None: there is no
            ring, because the text is read in blocks, however short.
        state: of the streams that are continued; None: new texts begin.
        position: number of steps that they have read, the same of all.

    Attributes:
        text: the tokens that were read, to be told of them by the model.
        age_B: how many of the tokens read are not padding; None if there was no padding.
        ended: whether texts were padded at the end, and so cannot go on.
    """

    def __init__(
        self, storage: str | None = "keys-values", state: StreamState | None = None, position: int = 0
    ) -> None:
        super().__init__()
        self.storage = storage
        self.load_state(state, position)

    def reset(self) -> None:
        """Forget everything: the next block begins a new text."""
        self.load_state(None, 0)

    def load_state(self, state: StreamState | None, position: int) -> None:
        """Forget everything, and continue where streams have stopped; the arguments are those of the class."""
        self._state = state
        self.position = position
        self.texts = 0 if state is None else state.memory_KCBD.shape[2]
        self.device = None if state is None else state.memory_KCBD.device
        self.age_B: Tensor | None = None
        self.ended = False
        self.text = KnownText(complete=position == 0)
        self._ring: StepMemory | None = None

    @property
    def decoding(self) -> bool:
        """Whether the memory is that of decoding step by step."""
        return self._ring is not None

    @property
    def state(self) -> StreamState | None:
        """The state after the last block; None before the first one."""
        if self._ring is not None:
            raise UserError("past_key_values: holds the memory of a decoding, which has no state; use it to decode on")
        return self._state

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Number of tokens read of the text that ``generate`` was given last."""
        return self.position - self.text.start

    def begin_generation(self, tokens_BT: Tensor) -> None:
        """Find out what the input of ``generate`` is; see ``KnownText.begin``."""
        if len(tokens_BT) != self.texts:
            raise UserError(f"past_key_values: holds {self.texts} texts, not {len(tokens_BT)}; give as many")
        self.text.begin(tokens_BT, self.position)

    def run(self, stack: Stack, x_BTD: Tensor, age_TB: Tensor | None) -> Tensor:
        """Run the layers over the next T tokens, and remember them.

        Args:
            age_TB: the age of each text at each token; None: it is at least as old as its memory goes back.

        Returns:
            Features [B, T, D].
        """
        in_blocks = torch.is_grad_enabled() or is_tracing() or self.storage is None
        if self._ring is None and x_BTD.shape[1] == 1 and self.position and not in_blocks:
            self._begin_ring(stack)
        if self._ring is None:
            features_BTD = self._run_blocks(stack, x_BTD, age_TB)
        else:
            features_BTD = torch.stack([stack.run_step(x_BD, self._ring) for x_BD in x_BTD.unbind(1)], 1)
        self.texts, T = x_BTD.shape[:2]
        self.device = x_BTD.device
        self.position += T
        self.age_B = None if age_TB is None else age_TB[-1] + 1
        return features_BTD

    def _begin_ring(self, stack: Stack) -> None:
        """Go on step by step, from the state after a block."""
        self._ring = stack.ring_after(self._state, self.storage)
        self._state = None
        if self.age_B is not None:
            self._ring.reset(self.age_B)

    def _run_blocks(self, stack: Stack, x_BTD: Tensor, age_TB: Tensor | None) -> Tensor:
        """Run the layers over tokens together, see ``run``; if that fails, the state stays that before them."""
        features = []
        state = self._state
        first = 0
        for x_BtD in x_BTD.split(x_BTD.shape[1] if torch.is_grad_enabled() else BLOCK_STEPS, 1):
            last = first + x_BtD.shape[1]
            age_tB = None if age_TB is None else age_TB[first:last]
            y_TBD, state = stack.run_block(x_BtD.transpose(0, 1), state, age_tB)
            features.append(y_TBD)
            first = last
        self._state = state
        return torch.cat(features).transpose(0, 1)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self.texts = len(beam_idx)
        self.text.reorder(beam_idx)
        self.age_B = in_order(self.age_B, beam_idx)
        if self._ring is not None:
            self._ring.reorder(beam_idx)
        elif self._state is not None:
            memory_KCBD = self._state.memory_KCBD
            self._state = StreamState(memory_KCBD.index_select(2, beam_idx.to(memory_KCBD.device)))

    def nbytes(self) -> int:
        if self._ring is not None:
            return self._ring.nbytes()
        return 0 if self._state is None else self._state.memory_KCBD.nbytes


class DecoderCache(MemoryCache):
    """The memory of a translation model's decoder, and keys and values of the encoder's output. ``state``: the state of
    decoding, at its beginning.
    """

    def __init__(self, state: DecoderState):
        super().__init__()
        self.state = state
        keys_CBHE = state.encoder[0].keys_CBHE
        self.texts = keys_CBHE.shape[1]
        self.device = keys_CBHE.device

    def reset(self) -> None:
        """Not possible: the encoder's output would stay."""
        raise UserError(
            "past_key_values: cannot be used for other sources; leave it out, and the model makes a new one"
        )

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.state.ring.position

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self.texts = len(beam_idx)
        self.state.reorder(beam_idx)

    def nbytes(self) -> int:
        """Bytes of the memory, without keys and values of the encoder's output."""
        return self.state.ring.nbytes()
