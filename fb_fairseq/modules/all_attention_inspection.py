"""Attention weights of all-attention layers, for inspection: without dropout and without gradient."""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fb_fairseq.errors import UserError
from fb_fairseq.modules.interface import StreamState
from fb_fairseq.modules.relative_transformer import RelativeTransformer
from fb_fairseq.ops.all_attention import (
    all_attention,
    by_group,
    persistent_query,
    persistent_scores,
    persistent_sublayer,
    split_queries,
)
from fb_fairseq.ops.attention import attention_by_distance, block_attention
from fb_fairseq.ops.layers import attention_residual, project_query


class AllAttentionInspection(RelativeTransformer):
    """Base class of ``AllAttention``, whose ``layer_weights`` are ``AllAttentionWeights``."""

    def memory_attention(self, x_TBD: Tensor, state: StreamState | None = None) -> tuple[Tensor, StreamState]:
        """See ``TransformerStack.memory_attention``; H counts the heads that attend to the context.

        With persistent vectors in the same softmax (``all-attn``), a head's weights sum to what these leave.
        """
        weights_LBHTS, _, state = self._inspect_block(x_TBD, state)
        return torch.stack(weights_LBHTS), state

    def persistent_use(self, x_TBD: Tensor, state: StreamState | None = None) -> tuple[Tensor, StreamState]:
        """The attention that each persistent vector gets in a block, averaged over steps and streams. Returns weights
        [L, U, N], and the state after the block. The N weights of a group sum to 1; with ``all-attn`` they are parts of
        one softmax over vectors and context, and sum to the vectors' share of it.
        """
        if not self.options.persistent_memory_size:
            raise UserError("--persistent-memory-size 0: the model has no persistent vectors; give another one")
        _, use_LUN, state = self._inspect_block(x_TBD, state)
        return torch.stack(use_LUN), state

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
    def _inspect_block(
        self, x_TBD: Tensor, state: StreamState | None
    ) -> tuple[list[Tensor], list[Tensor | None], StreamState]:
        """Run the layers over a block. Returns, layer by layer, the two attention weights of ``_inspect_layer``, those
        of the context for all S distances; and the state after the block.
        """
        S = self.options.attention_span
        reaches = self.reaches()
        state = StreamState.entering(state, len(self.layers), S, x_TBD)
        inputs, weights_LBHTS, use_LUN = [], [], []
        for layer, carried_CBD, reach in zip(self.layers, state.memory_KCBD, reaches):
            inputs.append(x_TBD)
            x_TBD, weights_BHTS, use_UN = self._inspect_layer(layer, x_TBD, carried_CBD[-reach:], reach)
            weights_LBHTS.append(F.pad(weights_BHTS, (0, S - reach)))
            use_LUN.append(use_UN)
        return weights_LBHTS, use_LUN, state.extended(torch.stack(inputs), self.carried_steps(reaches))

    def _inspect_layer(
        self, layer: Any, x_TBD: Tensor, carried_CBD: Tensor, reach: int
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Run a layer over a block as ``run_layer`` does in evaluation.

        Args:
            layer, x_TBD, carried_CBD, reach: see ``run_layer``.

        Returns:
            Its output; the attention weights of the context, by distance (see ``attention_by_distance``); and those of
            the persistent vectors [U, N], averaged over steps and streams, or None if N = 0.
        """
        before = self.options.decoder_normalize_before
        weights = self.layer_weights(layer, reach)
        keys_CBHE, values_CBHE = self.context(layer, x_TBD, carried_CBD)
        attention = dict(
            k_CBHE=keys_CBHE,
            span=reach,
            positions=self.positions.weights().reaching(reach),
            span_mask_HS=weights.span_mask_HS,
        )
        attend = partial(block_attention, v_CBHE=values_CBHE, **attention)
        q_TBHE = project_query(x_TBD, weights, self.options.decoder_attention_heads, before)
        attended_TBHE, share_TBH1 = all_attention(q_TBHE, attend, weights)
        x_TBD = attention_residual(x_TBD, attended_TBHE, weights, before)
        context_q_TBHE, persistent_q = split_queries(q_TBHE, weights.variant)
        weights_BHTS = attention_by_distance(context_q_TBHE, **attention)
        if weights.persistent is None:
            return x_TBD, weights_BHTS, None
        if weights.variant == "ff-attn":
            persistent_q = persistent_query(x_TBD, weights, before)
            x_TBD = persistent_sublayer(x_TBD, weights, before)
        use_URN = persistent_scores(by_group(persistent_q), weights.persistent).softmax(-1)
        if share_TBH1 is not None:  # one softmax over both
            weights_BHTS = weights_BHTS * (1 - share_TBH1.permute(1, 2, 0, 3))
            use_URN = use_URN * by_group(share_TBH1)
        return x_TBD, weights_BHTS, use_URN.mean(1)
