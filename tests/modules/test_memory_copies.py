"""Memories of decoding are copied and saved like other objects: they hold no native handles then."""

import copy
import io
import pickle

import pytest
import torch

from fb_fairseq.modules import AllAttention, FeedbackTransformer, RelativeTransformer
from tests.modules.options import random_options, randomise


def saved(ring):
    file = io.BytesIO()
    torch.save(ring, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda ring: pickle.loads(pickle.dumps(ring)), saved])
@pytest.mark.parametrize("stack", [FeedbackTransformer, RelativeTransformer, AllAttention])
@pytest.mark.parametrize("seed", range(3))
@torch.no_grad()
def test_copies_go_on(stack, seed, copied):
    """As the original, and apart from it, after steps in which streams were reordered."""
    changes = {"activation_fn": "relu", "persistent_memory_size": 5} if stack is AllAttention else {}
    options = random_options(seed, **changes)
    model = stack(options).eval()
    randomise(model)
    rings = [model.new_ring(), model.new_ring()]
    x_TBD = torch.randn(12, 3, options.decoder_embed_dim)
    for t, x_BD in enumerate(x_TBD[:6]):
        for ring in rings:
            model.run_step(x_BD, ring)
            if t == 4:
                ring.reorder(torch.tensor([2, 0, 0]))
    rings.append(copied(rings[0]))
    for x_BD in x_TBD[6:]:
        first, *others = (model.run_step(x_BD, ring) for ring in rings)
        for other in others:
            torch.testing.assert_close(other, first, atol=1e-5, rtol=1e-5)
