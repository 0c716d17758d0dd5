"""fairseq-fixed does what fairseq 0.12.2 does, whose values these are. (Batches: ``cli/test_every_sentence.py``.)"""

import argparse
import logging
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from fairseq.data import Dictionary

import fb_fairseq.models  # noqa: F401  with the patches
from fb_fairseq.patches import fairseq_fixed
from tests.cli import parallel_text
from tests.conftest import REPOSITORY


@pytest.mark.on_ci
def test_diverse_beams_are_penalised_by_the_words_of_a_step():
    from fairseq.search import DiverseBeamSearch

    dictionary = Dictionary()
    for word in "abcdef":
        dictionary.add_symbol(word)
    search = DiverseBeamSearch(dictionary, num_groups=2, diversity_strength=0.5)
    scores, chosen = torch.zeros(1, 4, 3), []
    for step in range(3):
        torch.manual_seed(step)
        scores_of_words = torch.randn(len(dictionary)).log_softmax(-1).expand(1, 4, -1)  # both groups choose the same
        found, words, beams = search.step(step, scores_of_words, scores, original_batch_idxs=torch.tensor([0]))
        assert words.shape == beams.shape == (1, 8), "twice as many candidates as beams, as some may end"
        scores[0, :, step] = found[0, :4]
        chosen.append(words[0].tolist())
    assert chosen == [[0, 0, 7, 7, 3, 3, 6, 6], [0, 0, 3, 3, 7, 2, 1, 7], [4, 0, 4, 0, 6, 6, 7, 4]]


@pytest.mark.on_ci
def test_source_length(tmp_path):
    """``--match-source-len``: as many words as the source has."""
    data = parallel_text.preprocess(tmp_path)
    parallel_text.train(data, tmp_path / "run", max_update=1, disable_validation=True)
    log = parallel_text.generate(data, tmp_path / "run/checkpoint_last.pt", match_source_len=True)
    sources = dict(re.findall(r"^S-(\d+)\t(.*)$", log, re.M))
    found = {number: len(text.split()) for number, text in parallel_text.hypotheses(log).items()}
    assert found == {int(number): len(text.split()) for number, text in sources.items()} and len(found) == 30


AS_FAIRSEQ_DOES = "import logging; import fb_fairseq.models"
AFTER_FAIRSEQ = "import fairseq.models, logging; import fb_fairseq.models"
AFTER_A_PROGRAM = "import logging; logging.basicConfig(level=logging.DEBUG); import fb_fairseq.models"
TIMES = "assert r.level == logging.INFO and '%(asctime)s' in h.formatter._fmt"
OWN = "assert r.level == logging.DEBUG and h.formatter._fmt == logging.BASIC_FORMAT"


@pytest.mark.on_ci
@pytest.mark.parametrize("program,then", [(AS_FAIRSEQ_DOES, TIMES), (AFTER_FAIRSEQ, TIMES), (AFTER_A_PROGRAM, OWN)])
def test_log_levels(program, then):
    """From INFO on, with times; a program's own settings stay."""
    program += f"; r = logging.getLogger(); h, = r.handlers; {then}"
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, cwd=REPOSITORY)


@pytest.mark.on_ci
def test_encoders_of_either_version():
    """fairseq 0.12.2 saves most parameters of an encoder's layers twice."""
    from fairseq.models.transformer import TransformerConfig, TransformerEncoderBase
    from fairseq.models.transformer.transformer_config import EncDecBaseConfig

    cfg = TransformerConfig(encoder=EncDecBaseConfig(embed_dim=8, layers=2, attention_heads=2))
    dictionary = Dictionary()
    words = torch.nn.Embedding(len(dictionary), 8, 1)
    encoder, other = (TransformerEncoderBase(cfg, dictionary, words) for _ in range(2))
    state = {f"encoder.{name}": value for name, value in encoder.state_dict().items()}
    for name, shape in (("in_proj_weight", (24, 8)), ("out_proj_bias", (8,)), ("fc1_weight", (2048, 8))):
        state[f"encoder.layers.1.{name}"] = torch.ones(shape)
    other.upgrade_state_dict_named(state, "encoder")
    other.load_state_dict({name.partition(".")[2]: value for name, value in state.items()})
    twice = re.compile(r".*_float_tensor|.*\.(in_proj|out_proj|fc1|fc2)_(weight|bias)")
    loaded = other.state_dict()
    alike = {name: loaded[name].equal(value) for name, value in encoder.state_dict().items() if not twice.match(name)}
    assert any("q_proj" in name for name in alike) and all(alike.values())


@pytest.mark.parametrize("rebuild,given,kept", [(True, 7, 7), (False, 4, 7)])
def test_seeds_of_batches(rebuild, given, kept):
    """fairseq-fixed adds the epoch to the seed; the iterator keeps what was asked for."""
    calls = []

    def original(self, dataset, *, seed, epoch):
        calls.append((seed, epoch))
        return SimpleNamespace(seed=seed)

    task = SimpleNamespace(cfg=argparse.Namespace(rebuild_batches=rebuild))
    made = fairseq_fixed._iterate_by_seed(original, task, "data", seed=7, epoch=3)
    assert calls == [(given, 3)] and made.seed == kept
    earlier = SimpleNamespace(seed=9)
    assert fairseq_fixed._iterate_by_seed(lambda *_, **__: earlier, task, "data", seed=7, epoch=3).seed == 9
    default = fairseq_fixed._iterate_by_seed(original, argparse.Namespace(cfg=None), "data")
    assert calls[-1] == (0, 1) and default.seed == 1


def test_batches_of_any_sequence_of_indices():
    batch_all = lambda indices, *given, **options: [indices.tolist()]
    assert fairseq_fixed._batch_all(batch_all, [3, 1, 2], None) == [[3, 1, 2]]
    assert fairseq_fixed._batch_all(batch_all, [], None) == []


@pytest.mark.parametrize("level,handlers,found", [("DEBUG", 1, True), ("INFO", 1, False), ("DEBUG", 2, False)])
def test_a_logger_that_fairseq_has_set(level, handlers, found):
    logger = logging.Logger("own", level)
    for _ in range(handlers):
        logger.addHandler(logging.StreamHandler())
        logger.handlers[-1].setFormatter(logging.Formatter(logging.BASIC_FORMAT))
    assert fairseq_fixed._is_set_to_debug(logger) == found
    logger.handlers[0].setFormatter(logging.Formatter("%(message)s"))
    assert not fairseq_fixed._is_set_to_debug(logger)
    logger.handlers[:] = [logging.NullHandler()]
    assert not fairseq_fixed._is_set_to_debug(logger)
