"""All-attention: layers of attention only, over the context and persistent vectors; parallel over the block."""

import math
from functools import partial
from typing import Callable, List, Optional, Sequence, Tuple

import torch
import torch.nn as nn
from torch import Tensor

from fb_fairseq.errors import UserError
from fb_fairseq.modules.layer import AttentionLayer, affine
from fb_fairseq.modules.options import TransformerOptions
from fb_fairseq.modules.relative_transformer import RelativeTransformer
from fb_fairseq.modules.ring import MemoryRing
from fb_fairseq.modules.state import StreamState
from fb_fairseq.ops.all_attention.block import AllAttentionWeights, all_attention, persistent_sublayer
from fb_fairseq.ops.all_attention.persistent import PersistentVectors
from fb_fairseq.ops.attention import block_attention, step_attention
from fb_fairseq.ops.feedback.types import EncoderContext, FeedbackOptions, StepOutput
from fb_fairseq.ops.layers import Dropout, attention_residual, project_memory, project_query


class PersistentMemory(nn.Module):
    """N pairs of key and value vectors for each group of queries: k' ~ N(0, 1/E), v' ~ N(0, 1/N) (§5.1).

    The vectors themselves are ``sqrt(E) k'`` and ``sqrt(N) v'``. A group is, by variant of the ablation (§5.3): a head
    (``all-attn``, ``attn-split``); a head of the second half (``head-split``); all heads together (``single-head``), or
    the whole model width (``ff-attn``).
    """

    def __init__(self, options: TransformerOptions):
        super().__init__()
        H, E, N = options.decoder_attention_heads, options.head_dim, options.persistent_memory_size
        groups, width = {
            "head-split": (H - options.context_heads, E),
            "single-head": (1, H * E),
            "ff-attn": (1, options.decoder_embed_dim),
        }.get(options.persistent_memory_variant, (H, E))
        self.key = nn.Parameter(torch.randn(groups, N, width) / math.sqrt(width))
        self.value = nn.Parameter(torch.randn(groups, N, width) / math.sqrt(N))

    def weights(self) -> PersistentVectors:
        """The parameters k' and v'."""
        return PersistentVectors(self.key, self.value)


class AllAttentionLayer(AttentionLayer):
    """Attention over context and persistent vectors; no feed-forward sublayer, and no biases (Eq. 1, 2).

    Matrices are initialised U(-1/sqrt(D), 1/sqrt(D)), torch's default for linear layers.
    """

    def __init__(self, options: TransformerOptions, own_keys: bool):
        super().__init__(options, own_keys, bias=False)
        self.variant = options.persistent_memory_variant
        self.persistent_memory = PersistentMemory(options) if options.persistent_memory_size else None
        sublayers = 2 if self.variant == "ff-attn" else 1
        self.final_layer_norm = nn.LayerNorm(options.decoder_embed_dim) if sublayers == 2 else None
        if self.normalize_before:
            self.self_attn.out_proj.weight.data.div_(math.sqrt(sublayers * options.decoder_layers))

    def weights(self, reach: int) -> AllAttentionWeights:
        """See ``LayerWeights``."""
        return AllAttentionWeights(
            query=affine(self.self_attn.q_proj),
            out=affine(self.self_attn.out_proj),
            attn_norm=affine(self.self_attn_layer_norm),
            persistent=self.persistent_memory and self.persistent_memory.weights(),
            variant=self.variant,
            persistent_norm=self.final_layer_norm and affine(self.final_layer_norm),
            span_mask_HS=self.span_mask(reach),
        )


class AllAttention(RelativeTransformer):
    """All-attention layers (§4.2).

    Like the baseline they carry their inputs at the last S steps, and no step attends to itself.
    """

    layer_class = AllAttentionLayer

    def run_layer(self, layer, x_TBD: Tensor, carried_CBD: Tensor, reach: int, reach_TB: Optional[Tensor]) -> Tensor:
        """See ``RelativeTransformer.run_layer``."""
        return self._layer_and_share(layer, x_TBD, carried_CBD, reach, reach_TB)[0]

    def _layer_and_share(
        self, layer, x_TBD: Tensor, carried_CBD: Tensor, reach: int, reach_TB: Optional[Tensor] = None
    ) -> Tuple[Tensor, Optional[Tensor]]:
        """A layer's output [T, B, D], and the persistent vectors' share of the attention [T, B, H, 1]."""
        o, weights = self.options, layer.weights(reach)
        T, B, _ = x_TBD.shape
        # No step of the block attends to its last one.
        keys, values = project_memory(torch.cat([carried_CBD, x_TBD[:-1]]), layer.projection(), o.context_heads)
        attend = partial(
            block_attention,
            k_CBHE=keys,
            v_CBHE=values,
            span=reach,
            positions=self.positions.weights().reaching(reach),
            mask_BHTS=self.draw(o.attention_dropout, (B, o.context_heads, T, reach), x_TBD),
            span_mask_HS=weights.span_mask_HS,
            reach_TB=reach_TB,
        )
        return self._sublayers(x_TBD, attend, weights)

    def _sublayers(self, x: Tensor, attend: Callable, weights: AllAttentionWeights) -> Tuple[Tensor, Optional[Tensor]]:
        """A layer's output for a block [T, B, D] or a step [B, D], and the share of attention on persistent vectors."""
        o, before = self.options, self.options.decoder_normalize_before
        query = project_query(x, weights, o.decoder_attention_heads, before)
        mask_URN = self._draw_persistent(weights, x)
        attended, share = all_attention(query, attend, weights, mask_URN)
        x = attention_residual(x, attended, weights, before, self.draw(o.dropout, x.shape, x))
        if weights.persistent_norm is not None:
            x = persistent_sublayer(x, weights, before, mask_URN, self.draw(o.dropout, x.shape, x))
        return x, share

    def _draw_persistent(self, weights: AllAttentionWeights, x: Tensor) -> Optional[Dropout]:
        """Dropout of the weights of the persistent vectors, for a block or step of inputs [..., D]."""
        if weights.persistent is None:
            return None
        groups, vectors, _ = weights.persistent.key_UNE.shape
        return self.draw(self.options.attention_dropout, (groups, x[..., 0].numel(), vectors), x)

    def step(
        self, x_BD: Tensor, ring: MemoryRing, options: FeedbackOptions, encoder: Sequence[EncoderContext] = ()
    ) -> StepOutput:
        """See ``TransformerStack.step``."""
        weights = self.loop_weights(x_BD.device, [ring.span] * len(self.layers))
        inputs = []
        for layer, window in zip(weights.layers, ring.windows(weights, options, x_BD)):
            inputs.append(x_BD)
            attend = partial(
                step_attention,
                k_CBHE=window.keys_CBHE,
                v_CBHE=window.values_CBHE,
                positions=window.positions,
                span_mask_HC=window.span_mask_HC,
                far_BC=ring.far_BC(x_BD.device),
            )
            x_BD, _ = self._sublayers(x_BD, attend, layer)
        memory_KBD = torch.stack(inputs)
        ring.push(memory_KBD, weights, options)
        return StepOutput(x_BD, memory_KBD, None)

    def memory_attention(self, x_TBD: Tensor, state: Optional[StreamState] = None) -> Tuple[Tensor, StreamState]:
        """Not available: persistent vectors take a share of the same softmax.

        Raises:
            UserError: always; see ``persistent_shares``.
        """
        raise UserError("memory_attention: not available for all_attention_lm; use persistent_shares")

    def persistent_shares(self, x_TBD: Tensor, state: Optional[StreamState] = None) -> Tuple[Tensor, StreamState]:
        """How much attention the persistent vectors take in a block, averaged over steps and streams.

        Returns:
            Shares [L, H], and the state after the block.

        Raises:
            ValueError: persistent and context vectors do not share a softmax.
        """
        o = self.options
        if not o.persistent_memory_size or o.persistent_memory_variant != "all-attn":
            raise UserError(
                f"--persistent-memory-variant {o.persistent_memory_variant}, --persistent-memory-size "
                f"{o.persistent_memory_size}: persistent vectors share attention with the context in all-attn only"
            )
        reaches = self.reaches()
        state = StreamState.entering(state, len(self.layers), o.attention_span, x_TBD)
        inputs: List[Tensor] = []
        shares = []
        for layer, carried_CBD, reach in zip(self.layers, state.memory_KCBD, reaches):
            inputs.append(x_TBD)
            x_TBD, share_TBH1 = self._layer_and_share(layer, x_TBD, carried_CBD[-reach:], reach)
            shares.append(share_TBH1.mean((0, 1)).squeeze(-1))
        return torch.stack(shares), state.extended(torch.stack(inputs), self.carried_steps(reaches))
