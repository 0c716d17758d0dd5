"""No file runs code, and none is taken with a flipped bit, whichever command reads it."""

import argparse
import shutil

import pytest
import torch
from fairseq import checkpoint_utils

from fb_fairseq.commands.average_checkpoints import write_average
from fb_fairseq.commands.plot.checkpoints import layer_weights
from fb_fairseq.errors import UserError
from fb_fairseq.models.checkpoints import read_checkpoint
from fb_fairseq.papers.import_original.command import read as read_original
from fb_fairseq.papers.rl.runs import load_checkpoint as load_agent
from fb_fairseq.streams import checkpoints
from tests.cli.fairseq_commands import PLUGIN, run, train, training_arguments
from tests.cli.own_commands import refused
from tests.malicious import code, flip, malicious_files

TRANSLATOR = "feedback/checkpoint_last.pt"
TRANSLATION = ["--user-dir", PLUGIN, "--cpu", "-s", "de", "-t", "en"]


@pytest.fixture(scope="module")
def trained(byte_data, tmp_path_factory):
    """A run that was stopped in mid-epoch, with its streams' memory."""
    folder = tmp_path_factory.mktemp("trained")
    train(byte_data, folder, max_update=4, disable_validation=True, no_epoch_checkpoints=True)
    return folder


@pytest.fixture(scope="module")
def malicious(trained, tmp_path_factory):
    """Files, and what is there if their code has run."""
    folder = tmp_path_factory.mktemp("malicious")
    checkpoint = torch.load(trained / "checkpoint_last.pt", weights_only=True)
    return malicious_files(folder, folder / "it ran", checkpoint), folder / "it ran"


def test_the_files_run_code_without_protection(malicious):
    paths, marker = malicious
    for kind in ("alone (zip)", "extra_state (legacy)", "evaluated (zip)", "a_nested_pickle (zip)"):
        torch.load(paths[kind], weights_only=False)
        assert marker.exists(), kind
        marker.unlink()


def ensemble(path):
    return checkpoint_utils.load_model_ensemble_and_task([str(path)])


READERS = {
    "fairseq's own": checkpoint_utils.load_checkpoint_to_cpu,
    "ensemble": ensemble,
    "average": lambda path: write_average([path], f"{path}.average"),
    "plot": layer_weights,
    "initialisation": read_checkpoint,
    "memory": checkpoints._read,
    "original": read_original,
    "agent": load_agent,
}


@pytest.mark.parametrize("reader", READERS)
def test_no_file_runs_code(malicious, reader):
    paths, marker = malicious
    for kind, path in paths.items():
        with pytest.raises(UserError) as error:
            READERS[reader](str(path))
        assert "\n" not in str(error.value) and str(path) in str(error.value), kind
        assert "weights_only" not in str(error.value), "no advice to switch the protection off"
        assert not marker.exists(), kind


@pytest.mark.parametrize("reader", READERS)
def test_flipped_bits_are_found(trained, tmp_path, reader):
    (stream_memory,) = trained.glob("stream_memory.*")
    good = stream_memory if reader == "memory" else trained / "checkpoint_last.pt"
    if reader not in ("original", "agent"):  # these want other checkpoints
        READERS[reader](str(shutil.copy(good, tmp_path / "good.pt")))
    for record in range(4):
        for where in (0, 0.5, 1):
            path = tmp_path / "flipped.pt"
            path.write_bytes(flip(good, record, where))
            with pytest.raises(UserError, match="flipped.pt.*(truncated or corrupt|corrupt; )"):
                READERS[reader](str(path))


@pytest.mark.parametrize("command", ["eval-lm", "validate", "generate", "interactive"])
def test_commands(commands, byte_data, malicious, command):
    paths, marker = malicious
    for kind in ("extra_state (zip)", "alone (legacy)"):
        arguments = [byte_data, "--task", "streaming_lm", "--user-dir", PLUGIN, "--cpu", "--path", paths[kind]]
        arguments += ["--sample-break-mode", "eos"] if command == "generate" else []
        message = "not a checkpoint, or one with objects that are not data"
        refused(commands.run(f"fairseq-{command}", *arguments), message)
        assert not marker.exists()


@pytest.mark.parametrize("option", ["--restore-file", "--finetune-from-model", "--init-from-transformer"])
def test_training_from_a_malicious_file(commands, byte_data, malicious, tmp_path, option):
    paths, marker = malicious
    arguments = training_arguments(byte_data, tmp_path, max_update=2)
    result = commands.run("fairseq-train", *arguments, "--user-dir", PLUGIN, option, paths["extra_state (zip)"])
    refused(result, "objects that are not data")
    assert not marker.exists()


def with_option(path, changed, name, value):
    """A copy of a checkpoint whose model's configuration has another value."""
    content = torch.load(path, weights_only=True)
    options = content["cfg"]["model"]
    (vars(options) if isinstance(options, argparse.Namespace) else options)[name] = value
    torch.save(content, changed)
    return changed


@pytest.mark.parametrize("option", ["adaptive_softmax_cutoff", "xformers_att_config"])
def test_options_in_a_checkpoint_are_not_run(commands, parallel_data, translation_models, tmp_path, option):
    """fairseq evaluates some of the model's options, as ``adaptive_softmax_cutoff``, when it builds the model."""
    marker = tmp_path / "it ran"
    changed = with_option(translation_models / TRANSLATOR, tmp_path / "changed.pt", option, code(marker))
    for command in ("fairseq-generate", "fairseq-interactive"):
        result = commands.run(command, parallel_data, *TRANSLATION, "--path", changed)
        assert not marker.exists()
        if option == "adaptive_softmax_cutoff":
            assert result.status == 2 and "is code, or not a valid value" in result.errors[-1], result.errors


def test_options_of_a_stock_model_are_not_run(commands, byte_data, tmp_path):
    arguments = ["--task", "language_modeling", "--arch", "transformer_lm", "--decoder-layers", 1, "--batch-size", 2]
    sizes = ["--decoder-embed-dim", 8, "--decoder-input-dim", 8, "--decoder-output-dim", 8, "--tokens-per-sample", 16]
    rest = ["--decoder-attention-heads", 2, "--optimizer", "adam", "--max-update", 1, "--disable-validation", "--cpu"]
    run("train", byte_data, "--save-dir", tmp_path, *arguments, *sizes, *rest)
    on_streams = ["--user-dir", PLUGIN, "--task", "streaming_lm", "--cpu", "--path", tmp_path / "checkpoint_last.pt"]
    result = commands.run("fairseq-eval-lm", byte_data, *on_streams)
    assert result.status == 2 and "transformer_lm carries no memory" in result.errors[-1], result.errors
    marker = tmp_path / "it ran"
    for option in ("adaptive_softmax_cutoff", "adaptive_input_cutoff", "character_filters"):
        changed = with_option(tmp_path / "checkpoint_last.pt", tmp_path / "changed.pt", option, code(marker))
        if option != "adaptive_softmax_cutoff":
            switch = {"adaptive_input_cutoff": "adaptive_input", "character_filters": "character_embeddings"}[option]
            with_option(changed, changed, switch, True)
        for command in ("fairseq-eval-lm", "fairseq-interactive"):
            stock = ["--user-dir", PLUGIN, "--task", "language_modeling", "--cpu", "--path", changed]
            result = commands.run(command, byte_data, *stock)
            assert not marker.exists()
            assert result.status == 2 and "is code, or not a valid value" in result.errors[-1], result.errors


def test_files_that_a_checkpoint_names_are_not_opened(commands, trained, parallel_data, translation_models, tmp_path):
    """Those that its training started from, when it is only evaluated."""
    missing = tmp_path / "missing"
    changed = with_option(trained / "checkpoint_last.pt", tmp_path / "lm.pt", "init_from_transformer", str(missing))
    (model,), _, _ = ensemble(changed)
    assert not hasattr(model, "initialisation_problem")
    path = translation_models / TRANSLATOR
    changed = with_option(path, tmp_path / "translation.pt", "encoder_embed_path", str(missing))
    result = commands.run("fairseq-generate", parallel_data, *TRANSLATION, "--path", changed)
    assert result.status == 0, result.errors


def test_addresses_in_a_checkpoint_are_not_fetched(byte_data, trained, tmp_path, monkeypatch):
    from fairseq import file_utils

    from fb_fairseq.models.language_model import StreamingLanguageModel

    fetched = []
    monkeypatch.setattr(file_utils, "cached_path", lambda name, **unused: fetched.append(name) or name)
    content = torch.load(trained / "checkpoint_last.pt", weights_only=True)
    address = "http://localhost:1/codes"
    content["cfg"]["bpe"] = {"_name": "subword_nmt", "bpe_codes": address, "bpe_separator": "@@"}
    torch.save(content, tmp_path / "checkpoint.pt")
    with pytest.raises(UserError, match=f"--bpe-codes {address}: an address that the checkpoint names"):
        StreamingLanguageModel.from_pretrained(str(tmp_path), "checkpoint.pt", str(byte_data))
    assert address not in fetched
    with pytest.raises(SystemExit):  # subword-nmt opens it
        StreamingLanguageModel.from_pretrained(str(tmp_path), "checkpoint.pt", str(byte_data), bpe_codes=address)
    assert address in fetched
