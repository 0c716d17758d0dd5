"""All-attention (Sukhbaatar et al. 2019, arXiv 1907.01470): layers of attention only, over the context and persistent
vectors; parallel over the block.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn as nn
from torch import Tensor

from fb_fairseq.modules.affine import affine, norm, warn_of_hooks
from fb_fairseq.modules.all_attention_inspection import AllAttentionInspection
from fb_fairseq.modules.layer import AttentionLayer, span_mask
from fb_fairseq.modules.options import TransformerOptions
from fb_fairseq.ops.all_attention import AllAttentionWeights, PersistentVectors, all_attention, persistent_sublayer
from fb_fairseq.ops.attention import block_attention
from fb_fairseq.ops.dropout import Dropout
from fb_fairseq.ops.feedback.step_inputs import StepInputs
from fb_fairseq.ops.feedback.types import FeedbackWeights, StepOutput
from fb_fairseq.ops.layers import attention_residual, project_query


class PersistentMemory(nn.Module):
    """N pairs of key and value vectors for each group of queries: k' ~ N(0, 1/width), v' ~ N(0, 1/N) (§5.1).

    The vectors themselves are ``sqrt(width) k'`` and ``sqrt(N) v'``. A group is, by variant of the ablation (§5.3), a
    head of width E (``all-attn``, ``attn-split``), or one of the second half (``head-split``); all heads together, of
    width H E (``single-head``); or the whole model, of width D (``ff-attn``).
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
        """k' and v'."""
        return PersistentVectors(self.key, self.value)


class AllAttentionLayer(AttentionLayer):
    """Attention over context and persistent vectors; no feed-forward sublayer, and no biases (Eq. 1, 2).

    Matrices are initialised as torch's linear layers, U(-1/sqrt(n), 1/sqrt(n)) for n inputs; with pre-norm those of the
    output are divided by the root of the number of sublayers in the stack.
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
        """The weights without key and value projections. ``reach``: how many steps back the layer attends."""
        warn_of_hooks(self, self.self_attn)
        return AllAttentionWeights(
            query=affine(self.self_attn.q_proj),
            out=affine(self.self_attn.out_proj),
            attn_norm=norm(self.self_attn_layer_norm),
            persistent=self.persistent_memory and self.persistent_memory.weights(),
            variant=self.variant,
            persistent_norm=self.final_layer_norm and norm(self.final_layer_norm),
            span_mask_HS=span_mask(self, reach),
        )


class AllAttention(AllAttentionInspection):
    """All-attention layers (§4.2).

    Like the baseline they carry their inputs at the last S steps, and no step attends to itself.
    """

    layer_class = AllAttentionLayer
    layer_weights = staticmethod(AllAttentionLayer.weights)
    uses_feedback_step = False  # they have persistent vectors

    def run_layer(self, layer: Any, x_TBD: Tensor, carried_CBD: Tensor, reach: int, age_TB: Tensor | None) -> Tensor:
        o = self.options
        weights = self.layer_weights(layer, reach)
        keys_CBHE, values_CBHE = self.context(layer, x_TBD, carried_CBD)
        shape = x_TBD.shape[1], o.context_heads, len(x_TBD), reach
        attend = partial(
            block_attention,
            k_CBHE=keys_CBHE,
            v_CBHE=values_CBHE,
            span=reach,
            positions=self.positions.weights().reaching(reach),
            mask_BHTS=self.draw(o.attention_dropout, shape, x_TBD),
            span_mask_HS=weights.span_mask_HS,
            age_TB=age_TB,
        )
        return self._sublayers(x_TBD, attend, weights)

    def _sublayers(self, x: Tensor, attend: Callable[..., Tensor], weights: AllAttentionWeights) -> Tensor:
        """A layer's output for a block [T, B, D] or a step [B, D]. ``attend``: see ``all_attention``."""
        o, before = self.options, self.options.decoder_normalize_before
        query = project_query(x, weights, o.decoder_attention_heads, before)
        mask_URN = self._draw_persistent(weights, x)
        attended, _ = all_attention(query, attend, weights, mask_URN)
        x = attention_residual(x, attended, weights, before, self.draw(o.dropout, x.shape, x))
        if weights.persistent_norm is not None:
            x = persistent_sublayer(x, weights, before, mask_URN, self.draw(o.dropout, x.shape, x))
        return x

    def _draw_persistent(self, weights: AllAttentionWeights, x: Tensor) -> Dropout | None:
        """Dropout of the weights of the persistent vectors, for a block or step of inputs [..., D]."""
        if weights.persistent is None:
            return None
        groups, vectors, _ = weights.persistent.key_UNE.shape
        return self.draw(self.options.attention_dropout, (groups, x[..., 0].numel(), vectors), x)

    def largest_product(self, rows: int) -> int:
        o = self.options
        return 2 * rows * o.decoder_embed_dim * max(o.decoder_embed_dim, o.persistent_memory_size)

    def layers_step(
        self, inputs: StepInputs, attend_memory: Callable[..., Tensor], weights: FeedbackWeights
    ) -> StepOutput:
        x_BD, layer_inputs = inputs.x_BD, []
        for l, layer in enumerate(weights.layers):
            layer_inputs.append(x_BD)
            x_BD = self._sublayers(x_BD, partial(attend_memory, l), layer)
        return StepOutput(x_BD, torch.stack(layer_inputs), None, [*layer_inputs, x_BD])
