"""On real text, where FB_FAIRSEQ_DATA points at a folder of corpora."""

import gzip

import pytest

from fb_fairseq.commands import preprocess_bytes
from tests.cli.checkpoints import loss_by_hand
from tests.cli.fairseq_commands import json_logs, train


@pytest.mark.parametrize("arch", ["feedback_transformer_lm", "relative_transformer_lm"])
def test_enwik8_bytes(shared_data, tmp_path, arch):
    """A minute part of enwik8: it learns, and counts as by hand."""
    with gzip.open(shared_data / "enwik8-prefix/enwik8.first3600000.gz") as file:
        text = file.read(60_000)
    preprocess_bytes.binarise({"train": [text[:-5000]], "valid": [text[-5000:]]}, str(tmp_path), append_eos=False)
    sizes = dict(batch_size=16, tokens_per_sample=16, attention_span=32, decoder_embed_dim=32, decoder_ffn_embed_dim=64)
    log = train(tmp_path, tmp_path / "ck", arch=arch, max_update=100, **sizes)
    logged = json_logs(log, "valid")[-1]
    bits, n = loss_by_hand(tmp_path / "ck/checkpoint_last.pt", tmp_path, "valid", 3)
    assert n == 5000 and float(logged["valid_total_bits"]) == pytest.approx(bits, rel=1e-6)
    assert float(logged["valid_bpb"]) < 5.2
