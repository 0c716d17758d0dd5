"""The state dict of the papers' original programs, and what is imported from it."""

import re

from torch import Tensor

from fb_fairseq.errors import UserError

PROGRAMS = "adaptive-span or transformer-sequential"
DATA_PARALLEL_PREFIX = "module."
# Not imported: constants, buffers, and the adaptive spans' second entry, under the persistent memory.
IGNORED = re.compile(r".*mask_template$|single_memory_attn_buf$|.*persistent_memory\.adaptive_span\..*")


class Source:
    """The state dict of an original program's checkpoint. It records which tensors have been imported.

    Both programs save names with the prefix ``module.`` of the data-parallel wrapper, which is dropped here. The
    names, with D the width of the model, H heads of width E, N persistent vectors, S the attention span, L layers and V
    symbols:

    ==================================================  ============  =============================================
    in the checkpoint                                   shape         meaning
    ==================================================  ============  =============================================
    ``key_pe``                                          [1, E, S]     relative positions (adaptive-span)
    ``layers.{l}.attn.attn.key_pe``                     [1, E, S]     the same, repeated for each layer
                                                                      (transformer-sequential)
    ``layers.{l}.attn.proj_{query,key,val}.weight``     [H E, D]      projections of attention, without biases
    ``layers.{l}.attn.proj_out.weight``                 [D, H E]
    ``layers.{l}.norm1``, ``layers.{l}.norm2``          [D]           layer norms of attention and feed-forward
    ``layers.{l}.ff.fc1``, ``layers.{l}.ff.fc2``                      feed-forward sublayer, with biases
    ``out_norm``                                        [D]           final layer norm, with pre-norm only
    ``….adaptive_span._mask.current_val``               [H, 1, 1]     adaptive spans z (adaptive-span)
    ``….adaptive_span.mask.size_ratio``                 [H, 1, 1]     adaptive spans z (transformer-sequential)
    ``….persistent_memory.key``                         [H, E, N]     persistent keys (all-attention)
    ``….persistent_memory.val``                         [H, N, E]     persistent values
    ``single_memory_attn_params``                       [1, L + 1]    logits of the feedback memory's composition
    ``in_emb``, ``out_emb`` or ``out.out_emb``          [V, D]        embedding; output layer, with a bias
    ==================================================  ============  =============================================

    The modules ``layers``, ``embeddings`` and ``symbols`` say what each becomes.
    """

    def __init__(self, path: str, state: dict[str, Tensor]):
        self.path = path
        self.state = {without_prefix(name): tensor for name, tensor in state.items()}
        self.taken: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self.state

    def take(self, name: str) -> Tensor:
        """A tensor in fp32; records that it is imported."""
        if name not in self.state:
            raise UserError(f"{self.path}: {name} is missing; give a complete checkpoint of {PROGRAMS}")
        self.taken.add(name)
        return self.state[name].float()

    def check_all_taken(self) -> None:
        """Check that nothing would be lost."""
        unknown = [name for name in self.state if name not in self.taken and not IGNORED.match(name)]
        if unknown:
            more = f", … ({len(unknown) - 3} more)" if len(unknown) > 3 else ""
            raise UserError(
                f"{self.path}: {', '.join(unknown[:3])}{more}: unknown parameters, which cannot be imported; give a "
                f"checkpoint of {PROGRAMS}"
            )


def without_prefix(name: str) -> str:
    """A parameter's name without the prefix of the data-parallel wrapper."""
    return name[len(DATA_PARALLEL_PREFIX) :] if name.startswith(DATA_PARALLEL_PREFIX) else name
