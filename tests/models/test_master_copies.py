"""fp32 copies are clamped in each of the forms that fairseq keeps."""

import argparse

import pytest
import torch

from fb_fairseq.models.master_copies import clamp_master_copies


@pytest.mark.parametrize("kind", ["flat", "flat in a dict", "list", "none"])
def test_clamping(kind):
    parameters = [torch.nn.Parameter(torch.full((n,), 2.0)) for n in (3, 2, 4)]
    flat = torch.full((9,), 2.0)
    each = [torch.nn.Parameter(p.data.clone()) for p in parameters]
    copies = {"flat": flat, "flat in a dict": {0: flat}, "list": each, "none": None}[kind]
    optimizer = argparse.Namespace(fp16_params=parameters, fp32_params=copies)
    clamp_master_copies(optimizer, parameters[1:2])
    if kind == "list":
        flat = torch.cat([copy.data for copy in copies])
    if kind != "none":
        assert flat.tolist() == [2, 2, 2, 1, 1, 2, 2, 2, 2]
