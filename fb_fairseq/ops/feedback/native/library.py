"""The functions of the compiled step loop and their arguments, by ctypes. The structures mirror those of
src/arguments.h."""

import ctypes
import functools
import logging
from pathlib import Path
from typing import Any, Optional, Tuple

from torch import Tensor

from fb_fairseq.ops.feedback.native.build import BuildError, build

logger = logging.getLogger(__name__)

POINTER, NUMBER, REAL = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float


def structure(name: str, *members: Tuple[str, Any]):
    """A ctypes structure.

    Args:
        members: names, separated by spaces, and their type.
    """
    fields = [(member, kind) for names, kind in members for member in names.split()]
    return type(name, (ctypes.Structure,), {"_fields_": fields})


Pair = POINTER * 2  # of keys and of values
Matrix = structure("Matrix", ("panels bias", POINTER))
Norm = structure("Norm", ("weight bias", POINTER))
Mask = structure("Mask", ("keep", POINTER), ("scale", REAL))
AttentionArgs = structure("AttentionArgs", ("query out query_t out_t", Matrix), ("norm", Norm))
LayerArgs = structure(
    "LayerArgs",
    ("memory cross", AttentionArgs),
    ("fc1 fc2 fc1_t fc2_t", Matrix),
    ("ffn_norm", Norm),
    ("log_mask outside", POINTER),
    ("encoder", Pair),
    ("reach active set", NUMBER),
)
SetArgs = structure("SetArgs", ("project project_t", Matrix), ("norm", Norm), ("slots", Pair), ("memory", NUMBER))
BlockArgs = structure(
    "BlockArgs",
    ("T B D L H E F K C S I sources rows_per_source record_steps", NUMBER),
    ("pre_norm mask_slots activation alignment_layer alignment_heads", NUMBER),
    ("scale eps", REAL),
    ("layers sets mix key_positions value_positions key_positions_t value_positions_t x first_query", POINTER),
    ("x_ATBD attended_x q a p hidden attention_sum ffn_sum", POINTER),
    ("crossed_x cross_q cross_a cross_p cross_sum", POINTER),
    ("memory out aligned", POINTER),
    ("attention_mask hidden_mask attention_residual_mask ffn_residual_mask cross_mask cross_residual_mask", Mask),
    ("reach padding scratch", POINTER),
)
RingArgs = structure("RingArgs", ("slots span position", NUMBER), ("origin age", POINTER))
TileArgs = structure(
    "TileArgs",
    ("first steps at tile_steps W", NUMBER),
    ("d_out d_x dq da d_attention d_ffn d_hidden d_attn_norm d_ffn_norm", POINTER),
    ("dcq dca d_crossed d_cross_norm dcs", POINTER),
    ("d_kv d_kv_normed d_memory ds p_slots d_slots", POINTER),
)


class Library:
    """The compiled functions.

    Attributes:
        path: where they lie.
        compiler: what they were compiled with.
        VL: floats in a vector.
        PANEL: columns in a panel of a packed matrix.
    """

    def __init__(self, path: Path, compiler: str):
        self.path, self.compiler = path, compiler
        library = ctypes.CDLL(str(path))
        for name, arguments in {
            "fb_vector_length": [],
            "fb_panel": [],
            "fb_scratch_size": [POINTER],
            "fb_pack": [POINTER, NUMBER, NUMBER, NUMBER, NUMBER, POINTER],
            "fb_forward": [POINTER, *[NUMBER] * 5],
            "fb_backward": [POINTER, POINTER, NUMBER, NUMBER],
            "fb_step": [POINTER, POINTER, NUMBER, NUMBER],
        }.items():
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, NUMBER  # of those that return something
            setattr(self, name[len("fb_") :], function)
        self.VL, self.PANEL = self.vector_length(), self.panel()

    def packed_size(self, K: int, N: int) -> int:
        """Floats of a packed matrix [K, N]."""
        return -(-N // self.PANEL) * self.PANEL * K


def pointer(x: Optional[Tensor]) -> Optional[int]:
    """Where a contiguous tensor lies; None (a null pointer) without a tensor."""
    if x is None:
        return None
    assert x.is_contiguous(), "the native loop works on contiguous tensors"
    return x.data_ptr()


def open_library() -> Library:
    """The library, compiled if need be.

    Raises:
        BuildError: see ``fb_fairseq.ops.feedback.native.build.build``.
        OSError: it cannot be loaded.
    """
    built = build()
    return Library(built.path, built.compiler)


@functools.lru_cache(maxsize=None)
def load() -> Optional[Library]:
    """The library; None, with one line in the log, if it cannot be built here."""
    try:
        library = open_library()
    except (BuildError, OSError) as error:
        logger.info(f"step loop: the native loop is not available, the fast loop runs: {error}")
        return None
    logger.info(f"step loop: native, vectors of {library.VL} floats ({library.compiler}, {library.path})")
    return library
