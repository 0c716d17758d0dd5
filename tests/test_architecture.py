"""ops and modules run with torch alone."""

import subprocess
import sys

from tests.conftest import REPOSITORY

PROGRAM = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("fairseq", "omegaconf", "hydra"):
            raise ImportError(f"{name} was imported")
sys.meta_path.insert(0, Refuse())
import torch, fb_fairseq, fb_fairseq.ops, fb_fairseq.modules, fb_fairseq.benchmark.command
from fb_fairseq.modules import AllAttention, FeedbackTransformer, RelativeTransformer, TransformerOptions
options = TransformerOptions(decoder_layers=1, decoder_embed_dim=8, decoder_ffn_embed_dim=8, decoder_attention_heads=2)
for stack in (FeedbackTransformer, RelativeTransformer, AllAttention):
    y, state = stack(options)(torch.randn(3, 2, 8))
    y.sum().backward()
print("fairseq" in sys.modules)
"""


def test_ops_and_modules_need_no_fairseq():
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=REPOSITORY, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "False", done.stderr
