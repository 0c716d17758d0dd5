"""Facts of how a model was made: of trainings, of what was made from them, and of files that may have anything."""

import json
from argparse import Namespace

import pytest

from fb_fairseq.facts import FACTS, facts_in, facts_of_average, facts_of_checkpoint, known_facts
from fb_fairseq.files import WRITER

KNOWN = {
    "data": "a text",
    "license": "mit",
    "language": "en",
    "updates": 600,
    "valid_bits": 2.25,
    "notes": [("a", "b")],
}


@pytest.mark.parametrize("found", [None, [], "text", {"notes": "text"}, {"notes": [1, "ab", ["a", 2], ["a"]]}])
def test_what_is_no_fact(found):
    assert known_facts(found) == {}


def test_facts_of_the_right_kind():
    assert known_facts({**KNOWN, "name": "x"}) == known_facts(json.loads(json.dumps(KNOWN))) == KNOWN
    wrong = dict(
        data=1, license=None, language=["en"], updates=True, valid_bits=float("nan"), valid_bpb="1", valid_bleu=1e9
    )
    assert known_facts(wrong) == {} == known_facts({"updates": 10**400})


def test_facts_of_a_training():
    extra = {"val_loss": 2.25, "best": 2.0}
    checkpoint = {"optimizer_history": [{"num_updates": 10}, {"num_updates": 600}], "extra_state": extra}
    checkpoint["cfg"] = {"checkpoint": {"best_checkpoint_metric": "loss"}}
    assert facts_of_checkpoint(checkpoint) == {"updates": 600, "valid_bits": 2.25}
    checkpoint["cfg"]["checkpoint"]["best_checkpoint_metric"] = "accuracy"
    assert facts_of_checkpoint(checkpoint) == {"updates": 600}
    checkpoint["cfg"] = {"optimization": {"sentence_avg": True}}  # its loss is one of sentences
    assert facts_of_checkpoint(checkpoint) == {"updates": 600}
    for empty in ({}, {"optimizer_history": [], "extra_state": None, "cfg": None}, {"extra_state": {"val_loss": None}}):
        assert facts_of_checkpoint(empty) == {}


def test_what_a_command_fills_in_is_no_fact():
    filled = {WRITER: "a command", "optimizer_history": [{"num_updates": 5}], "extra_state": {"val_loss": 1.0}}
    assert facts_of_checkpoint(filled) == {}
    assert facts_of_checkpoint({**filled, FACTS: KNOWN}) == KNOWN


def test_facts_of_an_average():
    other = {**KNOWN, "license": "gpl", "updates": 700}
    assert facts_of_average([KNOWN, other]) == {"data": "a text", "language": "en", "updates": 700}
    assert facts_of_average([KNOWN, {}]) == facts_of_average([{}, {}]) == {}


def test_facts_that_are_no_loss():
    """BLEU, and bits per byte, where they choose the best checkpoint; a smoothed loss is none."""
    checkpoint = {"extra_state": {"val_loss": 20.5}, "cfg": {"checkpoint": {"best_checkpoint_metric": "bleu"}}}
    assert facts_of_checkpoint(checkpoint) == {"valid_bleu": 20.5}
    checkpoint["cfg"]["checkpoint"]["best_checkpoint_metric"] = "bpb"
    assert facts_of_checkpoint(checkpoint) == {"valid_bpb": 20.5}
    smoothed = {"label_smoothing": 0.1}
    for options in ({"cfg": {"criterion": smoothed}}, {"cfg": None, "args": Namespace(**smoothed)}):
        assert facts_of_checkpoint({"extra_state": {"val_loss": 6.0}, **options}) == {}


def test_facts_in_the_header_of_weights(tmp_path):
    torch_files = pytest.importorskip("safetensors.torch")
    import torch

    path, tensors = str(tmp_path / "model.safetensors"), {"x": torch.zeros(1)}
    entries = ({}, {"format": "pt"}, {"fb_fairseq_facts": "["}, {"fb_fairseq_facts": '{"updates": "7"}'})
    for others in entries:
        torch_files.save_file(tensors, path, others)
        assert facts_in(str(tmp_path)) == facts_in(str(tmp_path / "nothing")) == {}
    torch_files.save_file(tensors, path, {"fb_fairseq_facts": '{"updates": 7, "notes": [["é", "|"]]}'})
    assert facts_in(str(tmp_path)) == {"updates": 7, "notes": [("é", "|")]}
