"""Attention of a step to an encoder's output."""

import torch
from torch import Tensor

from fb_fairseq.ops.dropout import Dropout, dropout
from fb_fairseq.ops.products import at_least_fp32


def cross_attention(
    q_BHE: Tensor, k_CBHE: Tensor, v_CBHE: Tensor, padding_BC: Tensor | None = None, mask_BHC: Dropout | None = None
) -> tuple[Tensor, Tensor]:
    """Attention of one step's queries over the C positions of an encoder's output (Vaswani et al. 2017 §3.2.3).

    There may be fewer sources than rows of queries: each source then serves n consecutive rows, the hypotheses of one
    sentence.

    Args:
        k_CBHE, v_CBHE: keys and values of each source.
        padding_BC: True where the source is padded.
        mask_BHC: dropout of the weights.

    Returns:
        The attention output [B, H, E], and the weights [B, H, C] before dropout; B counts rows of queries.
    """
    q_BnHE = q_BHE.unflatten(0, (k_CBHE.shape[1], -1))
    scores_BnHC = torch.einsum("bnhe,cbhe->bnhc", q_BnHE, k_CBHE) * q_BHE.shape[-1] ** -0.5
    scores_BnHC = at_least_fp32(scores_BnHC)
    if padding_BC is not None:
        scores_BnHC = scores_BnHC.masked_fill(padding_BC[:, None, None], float("-inf"))
    weights_BHC = torch.softmax(scores_BnHC, -1).to(v_CBHE.dtype).flatten(0, 1)
    dropped_BnHC = dropout(weights_BHC, mask_BHC).unflatten(0, scores_BnHC.shape[:2])
    return torch.einsum("bnhc,cbhe->bnhe", dropped_BnHC, v_CBHE).flatten(0, 1), weights_BHC
