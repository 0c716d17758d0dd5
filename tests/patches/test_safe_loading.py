"""Checkpoints are loaded without running code: what is allowed for that, and what is not."""

import argparse
import importlib.machinery
import io
import pickle
import sys
import types

import numpy as np
import pytest
import torch

from fb_fairseq.literals import parse_literal
from fb_fairseq.patches import numpy_pickles, safe_loading
from fb_fairseq.patches.safe_loading import patch_literal_values


def test_fairseqs_own_classes_load_as_weights_only():
    content = {
        "args": argparse.Namespace(arch="transformer", lr=[0.1]),
        "best": np.float64(3.5),
        "counts": np.arange(6).reshape(2, 3),
        "text": np.array(["a", "bc"]),
        "scalars": [np.int32(-3), np.float16(0.5), np.bool_(True), np.str_("x"), np.dtype(">i4").type(7)],
        "tensor": torch.ones(2),
    }
    for _ in range(2):  # what was loaded is saved as before
        file = io.BytesIO()
        torch.save(content, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=True)
        assert loaded["args"].lr == [0.1] and loaded["best"] == 3.5 and type(loaded["best"]) is np.float64
        assert loaded["counts"].tolist() == [[0, 1, 2], [3, 4, 5]] and loaded["counts"].dtype == np.int64
        assert loaded["text"].tolist() == ["a", "bc"]
        assert loaded["scalars"] == content["scalars"]
        assert list(map(type, loaded["scalars"])) == [np.int32, np.float16, np.bool_, np.str_, np.int32]
        content = loaded
    assert type(pickle.loads(pickle.dumps(loaded["counts"]))) is np.ndarray


@pytest.mark.parametrize("module", ["numpy.core.multiarray", "numpy._core.multiarray"])
def test_scalars_of_either_numpy(module):
    """A checkpoint that was saved with numpy 1 is read with numpy 2, and the other way round."""
    file = io.BytesIO()
    torch.save(np.float64(3.5), file, _use_new_zipfile_serialization=False)
    own = np.float64(0).__reduce__()[0].__module__
    content = file.getvalue().replace(own.encode(), module.encode())
    assert torch.load(io.BytesIO(content), weights_only=True) == 3.5


def test_other_classes_do_not_load_as_weights_only():
    file = io.BytesIO()
    torch.save({"x": pytest.Mark}, file)
    file.seek(0)
    with pytest.raises(Exception, match="[Uu]nsupported|weights_only|Weights only"):
        torch.load(file, weights_only=True)


@pytest.mark.parametrize("by_name", [False, True])
def test_files_of_programs_that_allow_numpy(by_name, tmp_path):
    """As transformers' Trainer does; what is ours stays as it was."""
    value = {"state": np.random.get_state()[1], "number": np.float64(3.5)}
    torch.save(value, tmp_path / "x.pt")
    allowed = set(map(id, torch.serialization.get_safe_globals()))
    reconstruct = np.zeros(1).__reduce__()[0]
    scalar = np.float64(1).__reduce__()[0]
    foreign = [reconstruct, scalar, np.ndarray, np.dtype, type(np.dtype("u4")), type(np.dtype("f8"))]
    if by_name:
        foreign = [(entry, f"{entry.__module__}.{entry.__qualname__}") for entry in foreign]
    with torch.serialization.safe_globals(foreign):
        found = torch.load(tmp_path / "x.pt", weights_only=True)
    for loaded in (found, torch.load(tmp_path / "x.pt", weights_only=True)):
        assert (loaded["state"] == value["state"]).all() and loaded["number"] == 3.5
    assert set(map(id, torch.serialization.get_safe_globals())) == allowed


@pytest.mark.parametrize("spec,patched", [("fairseq_cli.train", True), ("mine", False), (None, False)])
def test_a_command_that_runs_as_the_main_module_evaluates_no_code(monkeypatch, spec, patched):
    """As by ``python -m fairseq_cli.train``: its name is ``__main__`` then."""
    main = types.ModuleType("__main__")
    main.__spec__ = spec and importlib.machinery.ModuleSpec(spec, None)
    monkeypatch.setitem(sys.modules, "__main__", main)
    patch_literal_values()
    assert (getattr(main, "eval", None) is parse_literal) == patched


@pytest.mark.parametrize("flat", [True, False])
def test_the_configuration_of_a_hub_model(flat):
    """Parts that it does not have, or that are names alone, have no addresses."""
    loaded = {"args": {"bpe": "gpt2"} if flat else {"tokenizer": {"_name": "moses", "source_lang": "a"}}}
    assert safe_loading._load_from_hub(lambda *args, **kwargs: loaded, "a") is loaded


def test_shapes_of_pickled_arrays():
    array = np.ndarray.__new__(numpy_pickles.PlainArray, 0)
    kind = types.SimpleNamespace(dtype=np.dtype("f4"))
    with pytest.raises(ValueError, match="not a shape"):
        array.__setstate__((1, (2, -1), kind, False, b""))
