"""fp32 copies are clamped in the flat forms that fairseq keeps. (Each by itself: test_training_hooks.py.)"""

import argparse

import pytest
import torch

from fb_fairseq.models.master_copies import clamp_master_copies


@pytest.mark.parametrize("in_dict", [False, True])
def test_clamping(in_dict):
    parameters = [torch.nn.Parameter(torch.full((n,), 2.0)) for n in (3, 2, 4)]
    flat = torch.tensor([2.0] * 4 + [-2.0] * 5)
    optimizer = argparse.Namespace(fp16_params=parameters, fp32_params={0: flat} if in_dict else flat)
    clamp_master_copies(optimizer, parameters[1:2])
    assert flat.tolist() == [2, 2, 2, 1, 0, -2, -2, -2, -2]
