"""The arguments of native calls are the same in Python and in C++, and none is missing."""

import ctypes

import pytest

from fb_fairseq.ops.feedback import block, tile
from fb_fairseq.ops.feedback.cpp.library import SOURCES
from fb_fairseq.ops.feedback.cpp.structures import (
    ACTIVATION_NUMBERS,
    STRUCTURES,
    BlockArgs,
    LayerArgs,
    Mask,
    Norm,
    structures,
)
from fb_fairseq.ops.layers import ACTIVATIONS
from tests.ops.feedback.cpp.built import feedback_block_cpp, needs_cpp_loop, single


def test_all_structures_and_activations_are_read():
    assert list(ACTIVATION_NUMBERS) == list(ACTIVATIONS)
    text = (SOURCES / "arguments.def").read_text(encoding="utf-8")
    assert len(STRUCTURES) == text.count("\nSTRUCT(") and BlockArgs.count == 40
    fields = sum(made.count for made in STRUCTURES.values())
    assert fields == text.count("\n  FIELD(") + text.count("\n  OPTIONAL(")


def test_a_text():
    """Types, order and what is optional are those of the definitions."""
    made = structures(
        "STRUCT(One)\n  FIELD(int64_t, a) // …\n  OPTIONAL(const float*, b)\nEND\nSTRUCT(Two)\n  FIELD(One, c)"
    )
    assert made["One"]._fields_ == [("a", ctypes.c_int64), ("b", ctypes.c_void_p)] and made["One"].optional == ["b"]
    assert made["Two"]._fields_ == [("c", made["One"])]


def test_fields_that_do_not_exist_or_are_not_given():
    for made in STRUCTURES.values():
        with pytest.raises(AttributeError, match=f"'{made.__name__}' object has no attribute 'no_field'"):
            (made * 1)()[0].no_field = 1
    for given in (dict(weight=1), dict(weight=1, bias=None)):
        with pytest.raises(TypeError, match="Norm needs bias"):
            Norm(**given)
    with pytest.raises(TypeError, match="LayerArgs needs fc1, fc2, ffn_norm, log_mask, .*, set, memory$"):
        LayerArgs(memory=None, cross=None)
    with pytest.raises(AttributeError, match="'Norm' object has no attribute 'shift'"):
        Norm(weight=1, bias=1, shift=1)
    mask = Mask(keep=None, scale=2.0)  # optional
    assert not mask.keep and mask.scale == 2.0


RECORDED = "x attended_x q a p hidden attention_sum ffn_sum crossed_x cross_q cross_a cross_p cross_sum".split()
WORKSPACE = "dq da d_attention d_ffn d_hidden d_attn_norm d_ffn_norm dcq dca dcs d_crossed d_cross_norm".split()
BY_SHAPE = "d_kv_ITBZ d_kv_normed_ITBD d_memory_KTBD ds_TLGW p_TLGW".split()
TENSORS = [(block.Record, name) for name in RECORDED] + [(tile.Workspace, name) for name in WORKSPACE + BY_SHAPE]


@needs_cpp_loop
@pytest.mark.parametrize("owner,name", TENSORS)
def test_tensors_that_have_another_name(owner, name, monkeypatch):
    """Given at the end of the constructor of a block's record, or of a tile's workspace."""
    init = owner.__init__

    def renaming(self, *arguments, **more):
        init(self, *arguments, **more)
        self.__dict__["another_name"] = self.__dict__.pop(name)

    monkeypatch.setattr(owner, "__init__", renaming)
    with pytest.raises((AttributeError, TypeError), match=f"no attribute '{name}'|needs {name}"):
        single(1, cross=True, decoder_normalize_before=False).run(feedback_block_cpp)
