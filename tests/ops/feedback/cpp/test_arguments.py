"""The structures of C++ calls are made of src/arguments.def, and refuse fields that are unknown or not given."""

import ctypes

import pytest

from fb_fairseq.ops.feedback.cpp.library import SOURCES
from fb_fairseq.ops.feedback.cpp.structures import (
    ACTIVATION_NUMBERS,
    STRUCTURES,
    LayerArgs,
    Mask,
    Norm,
    structures,
)
from fb_fairseq.ops.layers import ACTIVATIONS


def test_all_structures_and_activations_are_read():
    assert list(ACTIVATION_NUMBERS) == list(ACTIVATIONS)
    text = (SOURCES / "arguments.def").read_text(encoding="utf-8")
    assert len(STRUCTURES) == text.count("\nSTRUCT(")
    fields = sum(len(made.names) for made in STRUCTURES.values())
    assert fields == text.count("\n  FIELD(") + text.count("\n  OPTIONAL(")


def test_types_order_and_optional_fields_are_read():
    made = structures(
        "STRUCT(One)\n  FIELD(int64_t, a) // …\n  OPTIONAL(const float*, b)\nEND\nSTRUCT(Two)\n  FIELD(One, c)"
    )
    assert made["One"]._fields_ == [("a", ctypes.c_int64), ("b", ctypes.c_void_p)] and made["One"].required == ["a"]
    assert made["Two"]._fields_ == [("c", made["One"])]


def test_fields_that_do_not_exist_or_are_not_given():
    for made in STRUCTURES.values():
        with pytest.raises(AttributeError, match=f"'{made.__name__}' object has no attribute 'no_field'"):
            (made * 1)()[0].no_field = 1
    for given in (dict(weight=1), dict(weight=1, bias=None)):
        with pytest.raises(TypeError, match="Norm needs bias"):
            Norm(**given)
    with pytest.raises(TypeError, match="LayerArgs needs memory, fc1, fc2, ffn_norm, reach, set$"):
        LayerArgs(memory=None, cross=None)
    for shift in (1, None):
        with pytest.raises(AttributeError, match="'Norm' object has no attribute 'shift'"):
            Norm(weight=1, bias=1, shift=shift)
    mask = Mask(keep=None, scale=2.0)  # optional
    assert not mask.keep and mask.scale == 2.0
