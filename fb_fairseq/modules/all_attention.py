"""All-attention: layers of attention only, over the context and persistent vectors; parallel over the block."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

from fb_fairseq.errors import UserError
from fb_fairseq.modules.affine import affine, norm, warn_of_hooks
from fb_fairseq.modules.interface import StreamState
from fb_fairseq.modules.layer import AttentionLayer, attention_projection, span_mask
from fb_fairseq.modules.options import TransformerOptions
from fb_fairseq.modules.relative_transformer import RelativeTransformer
from fb_fairseq.ops.all_attention import (
    AllAttentionWeights,
    PersistentVectors,
    all_attention,
    by_group,
    persistent_heads,
    persistent_scores,
    persistent_sublayer,
)
from fb_fairseq.ops.attention import attention_by_distance, block_attention
from fb_fairseq.ops.feedback.decoding import StepInputs
from fb_fairseq.ops.feedback.types import FeedbackWeights, StepOutput
from fb_fairseq.ops.layers import Dropout, attention_residual, project_memory, project_query


class LayerAttention(NamedTuple):
    """A layer's context in a block.

    Attributes:
        context_BHTS: weights of the steps before, by distance; see ``attention_by_distance``.
        persistent_UN: weights of the persistent vectors, averaged over steps and streams; None if N = 0.
    """

    context_BHTS: Tensor
    persistent_UN: Tensor | None


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
        """k' and v'."""
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


class AllAttention(RelativeTransformer):
    """All-attention layers (§4.2).

    Like the baseline they carry their inputs at the last S steps, and no step attends to itself.
    """

    layer_class = AllAttentionLayer
    layer_weights = staticmethod(AllAttentionLayer.weights)
    uses_feedback_step = False  # they have persistent vectors

    def run_layer(self, layer: Any, x_TBD: Tensor, carried_CBD: Tensor, reach: int, age_TB: Tensor | None) -> Tensor:
        o = self.options
        weights = self.layer_weights(layer, reach)
        context, values_CBHE = self._context(layer, weights, x_TBD, carried_CBD, reach)
        shape = x_TBD.shape[1], o.context_heads, len(x_TBD), reach
        attend = partial(
            block_attention,
            **context,
            v_CBHE=values_CBHE,
            mask_BHTS=self.draw(o.attention_dropout, shape, x_TBD),
            age_TB=age_TB,
        )
        return self._sublayers(x_TBD, attend, weights)[0]

    def _context(
        self, layer: Any, weights: AllAttentionWeights, x_TBD: Tensor, carried_CBD: Tensor, reach: int
    ) -> tuple[dict[str, Any], Tensor]:
        """A layer's context in a block: arguments of ``attention_by_distance``, and the values [C, B, H, E]."""
        # No step of the block attends to its last one.
        inputs_CBD = torch.cat([carried_CBD, x_TBD[:-1]])
        keys_CBHE, values_CBHE = project_memory(inputs_CBD, attention_projection(layer), self.options.context_heads)
        positions = self.positions.weights().reaching(reach)
        context = dict(k_CBHE=keys_CBHE, span=reach, positions=positions, span_mask_HS=weights.span_mask_HS)
        return context, values_CBHE

    def _sublayers(
        self,
        x: Tensor,
        attend: Callable[..., Tensor],
        weights: AllAttentionWeights,
        attend_persistent: Callable[[Tensor], tuple[Tensor, Tensor]] | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """A layer's output for a block [T, B, D] or a step [B, D], and the share of attention on persistent vectors.
        ``attend``, ``attend_persistent``: see ``all_attention``.
        """
        o, before = self.options, self.options.decoder_normalize_before
        query = project_query(x, weights, o.decoder_attention_heads, before)
        if attend_persistent is None:
            mask_URN = self._draw_persistent(weights, x)
            attend_persistent = partial(persistent_heads, vectors=weights.persistent, mask_URN=mask_URN)
        attended, share = all_attention(query, attend, weights, attend_persistent)
        x = attention_residual(x, attended, weights, before, self.draw(o.dropout, x.shape, x))
        if weights.persistent_norm is not None:
            x = persistent_sublayer(x, weights, before, attend_persistent, self.draw(o.dropout, x.shape, x))
        return x, share

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
            x_BD, _ = self._sublayers(x_BD, partial(attend_memory, l), layer)
        return StepOutput(x_BD, torch.stack(layer_inputs), None, [*layer_inputs, x_BD])

    # For inspection: what the layers attend to, without dropout and without gradient.

    def memory_attention(self, x_TBD: Tensor, state: StreamState | None = None) -> tuple[Tensor, StreamState]:
        """See ``TransformerStack.memory_attention``; H counts the heads that attend to the context.

        With persistent vectors in the same softmax (``all-attn``), a head's weights sum to what these leave.
        """
        layers, state = self._watch_block(x_TBD, state)
        S = self.options.attention_span
        return torch.stack([F.pad(seen.context_BHTS, (0, S - seen.context_BHTS.shape[-1])) for seen in layers]), state

    def persistent_use(self, x_TBD: Tensor, state: StreamState | None = None) -> tuple[Tensor, StreamState]:
        """The attention that each persistent vector gets in a block, averaged over steps and streams. Returns weights
        [L, U, N], and the state after the block. The N weights of a group sum to 1; with ``all-attn`` they are parts of
        one softmax over vectors and context, and sum to the vectors' share of it.
        """
        if not self.options.persistent_memory_size:
            raise UserError("--persistent-memory-size 0: the model has no persistent vectors; give another one")
        layers, state = self._watch_block(x_TBD, state)
        return torch.stack([seen.persistent_UN for seen in layers]), state

    def persistent_shares(self, x_TBD: Tensor, state: StreamState | None = None) -> tuple[Tensor, StreamState]:
        """The attention that all persistent vectors take in a block, averaged over steps and streams. Returns shares
        [L, H], and the state after the block.
        """
        o = self.options
        if not o.persistent_memory_size or o.persistent_memory_variant != "all-attn":
            raise UserError(
                f"--persistent-memory-variant {o.persistent_memory_variant}, --persistent-memory-size "
                f"{o.persistent_memory_size}: persistent vectors share attention with the context in all-attn only; "
                "give a model of that variant"
            )
        use_LUN, state = self.persistent_use(x_TBD, state)
        return use_LUN.sum(-1), state

    @torch.no_grad()
    def _watch_block(self, x_TBD: Tensor, state: StreamState | None) -> tuple[list[LayerAttention], StreamState]:
        """The layers' contexts in a block, and the state after it."""
        reaches = self.reaches()
        state = StreamState.entering(state, len(self.layers), self.options.attention_span, x_TBD)
        inputs, layers = [], []
        for layer, carried_CBD, reach in zip(self.layers, state.memory_KCBD, reaches):
            inputs.append(x_TBD)
            x_TBD, seen = self._watch_layer(layer, x_TBD, carried_CBD[-reach:], reach)
            layers.append(seen)
        return layers, state.extended(torch.stack(inputs), self.carried_steps(reaches))

    def _watch_layer(self, layer: Any, x_TBD: Tensor, carried_CBD: Tensor, reach: int) -> tuple[Tensor, LayerAttention]:
        """Run a layer over a block as ``run_layer`` does in evaluation. Returns its output, and what it attends to.

        Which queries go to the context and which to the persistent vectors is decided in ``all_attention``: so it is
        called with functions that keep the weights of their attention in ``seen``.
        """
        weights = self.layer_weights(layer, reach)
        context, values_CBHE = self._context(layer, weights, x_TBD, carried_CBD, reach)
        seen: dict[str, Tensor] = {}

        def attend(q_TBHE: Tensor, return_lse: bool = False):
            seen["context_BHTS"] = attention_by_distance(q_TBHE, **context)
            return block_attention(q_TBHE, **context, v_CBHE=values_CBHE, return_lse=return_lse)

        def attend_persistent(q: Tensor):
            seen["persistent_URN"] = persistent_scores(by_group(q), weights.persistent).softmax(-1)
            return persistent_heads(q, weights.persistent)

        x_TBD, share_TBH1 = self._sublayers(x_TBD, attend, weights, attend_persistent)
        context_BHTS = seen["context_BHTS"]
        persistent_URN = seen.get("persistent_URN")
        if share_TBH1 is not None:  # one softmax over both
            context_BHTS = context_BHTS * (1 - share_TBH1.permute(1, 2, 0, 3))
            persistent_URN = persistent_URN * by_group(share_TBH1)
        return x_TBD, LayerAttention(context_BHTS, None if persistent_URN is None else persistent_URN.mean(1))
