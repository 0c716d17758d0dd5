"""The functions of the compiled step loop and their arguments, by ctypes. The structures mirror those of
src/loop.cpp."""

import ctypes
import functools
import logging
from typing import Optional

from torch import Tensor

from fb_fairseq.ops.feedback.native.build import BuildError, build

logger = logging.getLogger(__name__)

POINTER, NUMBER, REAL = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float


def structure(name: str, **fields: str):
    """A ctypes structure.

    Args:
        fields: by kind (``numbers``, ``reals``, ``pointers`` and digits to keep the names apart), the names of
            consecutive members.
    """
    kinds = {"numbers": NUMBER, "reals": REAL, "pointers": POINTER}
    members = [(member, kinds[kind.rstrip("0123456789")]) for kind, names in fields.items() for member in names.split()]
    return type(name, (ctypes.Structure,), {"_fields_": members})


LayerArgs = structure(
    "LayerArgs",
    pointers="query query_bias out out_bias fc1 fc1_bias fc2 fc2_bias "
    "query_t query_t_bias out_t out_t_bias fc1_t fc1_t_bias fc2_t fc2_t_bias "
    "attn_norm_weight attn_norm_bias ffn_norm_weight ffn_norm_bias log_mask outside",
    numbers="reach active set",
)
SetArgs = structure(
    "SetArgs",
    pointers="project project_bias project_t project_t_bias norm_weight norm_bias "
    "key_rows value_rows key_panels value_panels",
    numbers="memory",
)
BlockArgs = structure(
    "BlockArgs",
    numbers="T B D L H E F K C S I record_steps pre_norm mask_slots activation",
    reals="scale eps attention_scale hidden_scale attention_residual_scale ffn_residual_scale",
    pointers="layers sets mix key_positions value_positions key_positions_t value_positions_t x first_query "
    "x_ATBD attended_x q a p hidden attention_sum ffn_sum memory out "
    "attention_keep hidden_keep attention_residual_keep ffn_residual_keep reach scratch",
    numbers2="scratch_size",
)
TileArgs = structure(
    "TileArgs",
    numbers="first steps at tile_steps W",
    pointers="d_out d_x dq da d_attention d_ffn d_hidden d_attn_norm d_ffn_norm d_kv d_kv_normed d_memory ds "
    "p_slots d_slots",
)


class Library:
    """The compiled functions.

    Attributes:
        compiler: what they were compiled with.
        vector_length: floats in a vector, VL.
        panel: columns in a panel of a packed matrix.
    """

    def __init__(self, path: str, compiler: str):
        self.compiler = compiler
        library = ctypes.CDLL(path)
        library.fb_vector_length.restype = library.fb_panel.restype = NUMBER
        self.vector_length, self.panel = library.fb_vector_length(), library.fb_panel()
        for name, arguments in {
            "fb_pack": [POINTER, NUMBER, NUMBER, NUMBER, NUMBER, POINTER],
            "fb_fill_panels": [POINTER, NUMBER, NUMBER, NUMBER, NUMBER, POINTER],
            "fb_forward": [POINTER, *[NUMBER] * 6],
            "fb_backward": [POINTER, POINTER, NUMBER, NUMBER],
        }.items():
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, None
            setattr(self, name[len("fb_") :], function)

    def packed_size(self, K: int, N: int) -> int:
        """Floats of a packed matrix [K, N]."""
        return -(-N // self.panel) * self.panel * K

    def slot_panel_size(self, slots: int) -> int:
        """Slots of a head in whole panels."""
        return -(-slots // self.vector_length) * self.vector_length


def pointer(x: Optional[Tensor]) -> Optional[int]:
    """Where a contiguous tensor lies; None (a null pointer) without a tensor."""
    if x is None:
        return None
    assert x.is_contiguous(), "the native loop works on contiguous tensors"
    return x.data_ptr()


@functools.lru_cache(maxsize=None)
def load() -> Optional[Library]:
    """The library; None, with one line in the log, if it cannot be built here."""
    try:
        built = build()
        library = Library(str(built.path), built.compiler)
    except (BuildError, OSError) as error:
        logger.info(f"step loop: the native loop is not available: {error}")
        return None
    logger.info(f"step loop: native, vectors of {library.vector_length} floats ({built.compiler}, {built.path})")
    return library
