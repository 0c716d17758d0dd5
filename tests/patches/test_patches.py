"""What the compatibility module mends."""

import argparse
import io

import numpy as np
import pytest
import torch

from fb_fairseq.patches import fairseq_patches

weights_only = pytest.mark.skipif(
    not fairseq_patches.LOADS_WEIGHTS_ONLY, reason="this torch does not load weights only"
)


@weights_only
def test_fairseqs_own_classes_load_as_weights_only():
    content = {
        "args": argparse.Namespace(arch="transformer", lr=[0.1]),
        "best": np.float64(3.5),
        "counts": np.arange(3),
        "tensor": torch.ones(2),
    }
    file = io.BytesIO()
    torch.save(content, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    assert loaded["args"].lr == [0.1] and loaded["best"] == 3.5 and loaded["counts"].tolist() == [0, 1, 2]


@weights_only
def test_other_classes_do_not():
    file = io.BytesIO()
    torch.save({"x": pytest.Mark}, file)
    file.seek(0)
    with pytest.raises(Exception, match="[Uu]nsupported|weights_only|Weights only"):
        torch.load(file, weights_only=True)


def test_length_buckets_work_on_this_numpy():
    """fairseq reads ``np.compat.long``."""
    from fairseq.data import TokenBlockDataset

    items = [torch.tensor([5, 6, 2]), torch.tensor([7, 2])]
    blocks = TokenBlockDataset(items, [3, 2], block_size=None, pad=1, eos=2, break_mode="eos")
    assert [block.tolist() for block in blocks] == [[5, 6, 2], [7, 2]]


def test_encoder_stays_off_the_fused_path():
    """A loaded post-norm encoder layer reads a left-padded batch of two sentences in evaluation."""
    from fairseq.modules import TransformerEncoderLayer

    args = argparse.Namespace(
        encoder_embed_dim=8,
        encoder_attention_heads=2,
        encoder_ffn_embed_dim=16,
        dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        encoder_normalize_before=False,
    )
    layer = TransformerEncoderLayer(args)
    layer.load_state_dict(layer.state_dict())
    layer.eval()
    with torch.no_grad():
        out = layer(torch.randn(4, 2, 8), encoder_padding_mask=torch.tensor([[True, False, False, False], [False] * 4]))
    assert out.shape == (4, 2, 8) and out[1:].isfinite().all()


def test_unknown_words_take_hard_and_soft_alignments():
    """(fairseq-interactive itself prints hard ones only.)"""
    from fairseq import utils

    hard, soft = [(1, 0), (0, 1)], [["0.1", "0.9"], ["0.8", "0.2"]]
    for alignment in (hard, soft):
        assert utils.replace_unk("<unk> <unk>", "ba ce", alignment, {"ba": "X"}, "<unk>") == "ce X"
    assert utils.load_align_dict("@@ ") == {} and utils.load_align_dict(None) is None
