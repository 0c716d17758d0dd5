"""multilingual_feedback_decoder with fairseq's multilingual_translation task: train, resume, generate."""

import pytest
import torch

from fb_fairseq.errors import UserError
from tests.cli.fairseq_commands import json_logs, options, preprocess, run
from tests.cli.parallel_text import TINY, pairs, write_pairs

LANGUAGES = dict(lang_pairs="de-en,fr-en")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Two made-up languages, and a third that both are translated to."""
    folder = tmp_path_factory.mktemp("multilingual")
    for source in ("de", "fr"):
        for seed, split in enumerate(("train", "valid", "test")):
            write_pairs(folder / source / split, pairs(9 if seed else 40, seed), source)
        first = folder / "data/dict.en.txt"
        values = dict(source_lang=source, target_lang="en", destdir=folder / "data")
        preprocess(folder / source, **values, tgtdict=first if first.exists() else None)
    return folder / "data"


def train(data, save_dir, **changes):
    values = dict(TINY, task="multilingual_translation", arch="multilingual_feedback_decoder", **LANGUAGES)
    values.update(dict(log_interval=1, **changes))
    return run("train", data, "--save-dir", save_dir, *options(values))


@pytest.mark.parametrize("shared", [False, True])
def test_train_and_generate(data, tmp_path, shared):
    """With a decoder for each pair's target language, or a shared one with its own projections."""
    changes = dict(share_decoders=True, memory_projections="per-layer", memory_composition="average") if shared else {}
    log = train(data, tmp_path / "run", max_update=2, **changes)
    assert len(json_logs(log, "train_inner")) == 2 and json_logs(log, "valid")
    saved = torch.load(tmp_path / "run/checkpoint_last.pt", weights_only=True)["model"]
    names = {name.partition(".decoder.")[2] for name in saved}
    assert ("memory.k_proj.weight" in names) != shared and ("memory.layer_weights" in names) != shared
    if not shared:
        assert "Loaded checkpoint" in train(data, tmp_path / "run", max_update=3)
    values = dict(LANGUAGES, task="multilingual_translation", source_lang="fr", target_lang="en", beam=2, max_len_b=5)
    values.update(path=tmp_path / "run/checkpoint_last.pt", cpu=True, num_workers=0)
    assert run("generate", data, *options(values)).count("\nH-") == 9


@pytest.mark.parametrize("name,value", [("decoder_layers_to_keep", "0,1"), ("cross_self_attention", True)])
def test_refused(data, tmp_path, name, value):
    with pytest.raises(UserError, match=f"^--{name.replace('_', '-')}: .*leave it out"):
        train(data, tmp_path, max_update=2, **{name: value})
