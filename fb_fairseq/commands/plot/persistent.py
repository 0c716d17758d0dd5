"""How much models attend to their persistent vectors."""

from torch import Tensor

from fb_fairseq.commands.plot.measures import Shares, mean_over_steps
from fb_fairseq.errors import UserError
from fb_fairseq.modules import AllAttention
from fb_fairseq.pretrained.model import LanguageModel


def check_persistent(model: LanguageModel) -> None:
    """Check that a model has persistent vectors."""
    if not isinstance(model.stack, AllAttention) or not model.stack.options.persistent_memory_size:
        raise UserError(f"{model.source}: has no persistent vectors; give a checkpoint of all_attention_lm")


def persistent_shares(model: LanguageModel, tokens_BT: Tensor, context: int) -> Shares:
    """The share of attention on persistent vectors, by layer and head.

    Args:
        tokens_BT, context: see ``mean_over_steps``.
    """
    check_persistent(model)
    shares_LH = 100 * mean_over_steps(model, tokens_BT, context, model.stack.persistent_shares)
    return Shares(shares_LH.tolist(), [str(h + 1) for h in range(shares_LH.shape[1])], "head")


def persistent_use(model: LanguageModel, tokens_BT: Tensor, context: int) -> list[list[float]]:
    """The share of the attention on persistent vectors that the n most used ones take.

    Args:
        tokens_BT, context: see ``mean_over_steps``.

    Returns:
        For each layer, entry n - 1 is the share of the n vectors with most attention, averaged over heads.
    """
    check_persistent(model)
    use_LUN = mean_over_steps(model, tokens_BT, context, model.stack.persistent_use)
    sorted_LUN = use_LUN.sort(-1, descending=True).values / use_LUN.sum(-1, keepdim=True)
    return sorted_LUN.cumsum(-1).mean(1).tolist()
