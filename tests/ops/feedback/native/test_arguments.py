"""The arguments of native calls are the same in Python and in C++, and none is missing."""

import ctypes
import re

import pytest

from fb_fairseq.ops.feedback.fast import forward, tile
from fb_fairseq.ops.feedback.native.arguments import WORKSPACE, WORKSPACE_CROSS
from fb_fairseq.ops.feedback.native.build import BuildError, build
from fb_fairseq.ops.feedback.native.structures import STRUCTURES, BlockArgs, LayerArgs, Mask, Norm, check_layout
from tests.ops.feedback.native.built import needs_native_loop
from tests.ops.feedback.native.single import feedback_block_native, single


@pytest.fixture
def layout():
    """The text that describes the arguments in C++."""
    library = ctypes.CDLL(str(build().path))
    library.fb_layout.restype = ctypes.c_char_p
    return library.fb_layout().decode()


@needs_native_loop
def test_all_structures_are_compared(layout):
    names = re.findall("= (.*)", layout)
    assert names == ["Activation", *(made.__name__ for made in STRUCTURES)]
    check_layout(layout)


DIFFERENCES = {
    "another name": (
        "mask_slots int64",
        "mask_slot int64",
        "BlockArgs: field 14 is 'mask_slots' (int64) in structures.py, 'mask_slot' (int64) in arguments.def",
    ),
    "another type": (
        "keep uint8*?",
        "keep float32*?",
        "Mask: field 1 is 'keep' (uint8*?) in structures.py, 'keep' (float32*?) in arguments.def",
    ),
    "no longer optional": (
        "log_mask float32*?",
        "log_mask float32*",
        "LayerArgs: field 6 is 'log_mask' (float32*?) in structures.py, 'log_mask' (float32*) in arguments.def",
    ),
    "another place": (
        "scale float32 8 4",
        "scale float32 16 4",
        "Mask: field 2 is 'scale' (float32, 4 bytes at 8) in structures.py, "
        "'scale' (float32, 4 bytes at 16) in arguments.def",
    ),
    "a field less": (
        "age int64*? 32 8\n",
        "",
        "RingArgs: field 5 is 'age' (int64*?) in structures.py, (end) 40 in arguments.def",
    ),
    "a field more": (
        "(end) 40",
        "more int64 40 8\n(end) 48",
        "RingArgs: field 6 is (end) 40 in structures.py, 'more' (int64) in arguments.def",
    ),
    "another order": (
        "gelu\ngelu_accurate",
        "gelu_accurate\ngelu",
        "Activation: field 3 is gelu in layers.py, gelu_accurate in arguments.h",
    ),
    "a structure less": (
        "= Norm\nweight float32* 0 8\nbias float32* 8 8\n(end) 16\n",
        "",
        "Norm: field 1 is 'weight' (float32*) in structures.py, missing in arguments.def",
    ),
}


@needs_native_loop
@pytest.mark.parametrize("difference", DIFFERENCES)
def test_differences_are_named(difference, layout):
    old, new, message = DIFFERENCES[difference]
    assert layout.count(old) == 1
    with pytest.raises(BuildError, match="^" + re.escape(f"the native loop's {message}") + "$"):
        check_layout(layout.replace(old, new))


@pytest.mark.parametrize("made", STRUCTURES, ids=lambda made: made.__name__)
def test_fields_that_do_not_exist_cannot_be_set(made):
    arguments = (made * 1)()[0]
    with pytest.raises(AttributeError, match=f"'{made.__name__}' object has no attribute 'no_field'"):
        arguments.no_field = 1
    name = made._fields_[0][0]
    setattr(arguments, name, getattr(arguments, name))


def test_fields_that_are_not_given():
    with pytest.raises(TypeError, match="Norm needs bias"):
        Norm(weight=1)
    with pytest.raises(TypeError, match="Norm needs bias"):
        Norm(weight=1, bias=None)
    with pytest.raises(TypeError, match="LayerArgs needs fc1, fc2, ffn_norm, log_mask, .*, set, memory$"):
        LayerArgs(memory=None, cross=None)
    with pytest.raises(TypeError, match="BlockArgs needs"):
        BlockArgs()
    with pytest.raises(AttributeError, match="'Norm' object has no attribute 'shift'"):
        Norm(weight=1, shift=1)
    with pytest.raises(AttributeError, match="'Norm' object has no attribute 'shift'"):
        Norm(weight=1, bias=1, shift=1)
    mask = Mask(keep=None, scale=2.0)  # optional
    assert not mask.keep and mask.scale == 2.0


RECORDED = "x attended_x q a p hidden attention_sum ffn_sum crossed_x cross_q cross_a cross_p cross_sum".split()


@needs_native_loop
@pytest.mark.parametrize("name", RECORDED)
def test_tensors_of_a_record_that_have_another_name(name, monkeypatch):
    rename(forward.Record, name, monkeypatch)
    with pytest.raises(AttributeError, match=f"'Record' object has no attribute '{name}'"):
        single(1, cross=True, decoder_normalize_before=False).run(feedback_block_native)


TILE = [*WORKSPACE, *WORKSPACE_CROSS, "d_kv_ITBZ", "d_kv_normed_ITBD", "d_memory_KTBD", "ds_TLGW", "p_TLGW"]


@needs_native_loop
@pytest.mark.parametrize("name", TILE)
def test_tensors_of_a_workspace_that_have_another_name(name, monkeypatch):
    rename(tile.Workspace, name, monkeypatch)
    with pytest.raises(AttributeError, match=f"'Workspace' object has no attribute '{name}'"):
        single(1, cross=True).run(feedback_block_native)


def rename(owner, name, monkeypatch):
    """Give an attribute another name at the end of a class's constructor."""
    init = owner.__init__

    def renaming(self, *arguments):
        init(self, *arguments)
        self.__dict__["another_name"] = self.__dict__.pop(name)

    monkeypatch.setattr(owner, "__init__", renaming)
