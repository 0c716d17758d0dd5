"""Patches are applied once, whatever else wraps the same functions, before or afterwards."""

import functools
import subprocess
import sys
from types import SimpleNamespace

import pytest

from fb_fairseq.patches.wrapping import MARKER, has_patch, wrap_once
from tests.conftest import REPOSITORY


def add_one(original, x):
    return original(x) + 1


def wrapped_by_others(function):
    @functools.wraps(function)
    def others(*args, **kwargs):
        return function(*args, **kwargs)

    return others


def test_wraps_once():
    owner = SimpleNamespace(f=lambda x: 2 * x)
    for _ in range(2):
        wrap_once(owner, "f", "add_one", add_one)
    assert owner.f(3) == 7 and has_patch(owner.f, "add_one") and not has_patch(owner.f, "another")


def test_others_wrappers_below_and_on_top():
    owner = SimpleNamespace(f=wrapped_by_others(lambda x: 2 * x))
    wrap_once(owner, "f", "add_one", add_one)
    owner.f = wrapped_by_others(owner.f)
    delattr(owner.f, MARKER)  # functools.wraps has copied it; other decorators set only __wrapped__
    wrap_once(owner, "f", "add_one", add_one)
    assert owner.f(3) == 7


def test_two_patches_of_one_function():
    owner = SimpleNamespace(f=lambda x: 2 * x)
    for _ in range(2):
        wrap_once(owner, "f", "add_one", add_one)
        wrap_once(owner, "f", "add_one_again", add_one)
    assert owner.f(3) == 8 and has_patch(owner.f, "add_one") and has_patch(owner.f, "add_one_again")


def test_static_methods_and_methods():
    class Owner:
        @staticmethod
        def double(x):
            return 2 * x

        def method(self, x):
            return 2 * x

    for _ in range(2):
        wrap_once(Owner, "double", "static", add_one)
        wrap_once(Owner, "method", "method", lambda original, self, x: original(self, x) + 1)
    assert Owner.double(3) == Owner().double(3) == Owner().method(3) == 7


def test_a_replaced_function_is_patched_again():
    owner = SimpleNamespace(f=lambda x: 2 * x)
    wrap_once(owner, "f", "add_one", add_one)
    owner.f = lambda x: 3 * x
    wrap_once(owner, "f", "add_one", add_one)
    assert owner.f(3) == 10


# Wraps each function that is patched, imports the package, applies the patches again, wraps again and applies again.
PROGRAM = """
import functools, inspect
from types import SimpleNamespace
from fairseq import checkpoint_utils, criterions, options, utils
from fairseq.data import Dictionary, data_utils, indexed_dataset
from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager
from fairseq.logging import progress_bar
from fairseq.models import distributed_fairseq_model
from fairseq.models.transformer import TransformerEncoderBase
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from fairseq.ngram_repeat_block import NGramRepeatBlock
from fairseq.dataclass import utils as dataclass_utils
from fairseq.scoring.bleu import Scorer
from fairseq.sequence_generator import SequenceGenerator
from fairseq.sequence_scorer import SequenceScorer
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer
import omegaconf
from omegaconf import DictConfig
from omegaconf.nodes import ValueNode

targets = [
    (NGramRepeatBlock, "_no_repeat_ngram", ["ngram_blocking"]),
    (utils, "load_align_dict", ["align_dict_default"]),
    (utils, "replace_unk", ["alignment_format"]),
    (FairseqTask, "build_generator", ["search_values", "alignment_request"]),
    (FairseqTask, "train_step", ["train_step"]),
    (FairseqTask, "optimizer_step", ["optimizer_step"]),
    (criterions, "build_criterion", ["criterion_check"]),
    (progress_bar, "progress_bar", ["log_file"]),
    (distributed_utils, "infer_init_method", ["torchrun"]),
    (distributed_fairseq_model, "DistributedDataParallel", ["ddp_on_cpu"]),
    (PathManager, "copy", ["checkpoint_copy"]),
    (checkpoint_utils, "torch_persistent_save", ["checkpoint_writing"]),
    (checkpoint_utils, "save_checkpoint", ["stream_memory_saving"]),
    (options, "parse_args_and_arch", ["command_line"]),
    (dataclass_utils, "eval_str_list", ["command_line"]),
    (Trainer, "__init__", ["hydra_values"]),
    (checkpoint_utils, "load_model_ensemble_and_task", ["model_loading", "dictionary_check"]),
    (checkpoint_utils, "load_checkpoint", ["restore_file", "save_dir_lock", "finished_run"]),
    (FairseqTask, "filter_indices_by_size", ["empty_splits"]),
    (Trainer, "save_checkpoint", ["finished_run", "dictionary_check"]),
    (SequenceScorer, "generate", ["line_scores"]),
    (indexed_dataset, "make_dataset", ["indexed_data"]),
    (Dictionary, "add_from_file", ["dictionary_errors"]),
    (checkpoint_utils, "load_checkpoint_to_cpu", ["checkpoint_reading", "dictionary_check"]),
    (Trainer, "load_checkpoint", ["load_errors", "finished_run", "resume_hooks", "dictionary_check"]),
    (data_utils, "batch_by_size", ["last_batch"]),
    (SequenceGenerator, "_generate", ["source_lengths"]),
    (Scorer, "add", ["empty_texts"]),
    (TransformerEncoderBase, "upgrade_state_dict_named", ["fused_copies"]),
]
if omegaconf.__version__.startswith("2.0."):
    targets += [(ValueNode, "_deepcopy_impl", ["config_copies"]), (DictConfig, "__deepcopy__", ["config_copies"])]
if "_load_from_state_dict" in vars(TransformerEncoderLayerBase):
    targets.append((TransformerEncoderLayerBase, "_load_from_state_dict", ["encoder_fast_path"]))

def wrap_all():
    for owner, name, _ in targets:
        function = getattr(owner, name)
        def others(*args, _function=function, **kwargs):
            return _function(*args, **kwargs)
        others = functools.wraps(function)(others)
        static = isinstance(inspect.getattr_static(owner, name), staticmethod)
        setattr(owner, name, staticmethod(others) if static else others)

def installed(function):
    # The patches along the chain of wrappers, innermost first. functools.wraps copies markers to the wrappers above.
    found = []
    while function is not None:
        code = getattr(function, "__code__", None)  # a class has none
        if code is not None and code.co_name != "others" and hasattr(function, "_fb_fairseq_patch"):
            found.append(function._fb_fairseq_patch)
        function = getattr(function, "__wrapped__", None)
    return found[::-1]

def check():
    for owner, name, expected in targets:
        assert installed(getattr(owner, name)) == expected, (name, installed(getattr(owner, name)))

wrap_all()
import fb_fairseq.patches
check()
fb_fairseq.patches.apply_patches()
check()
wrap_all()
fb_fairseq.patches.apply_patches()
check()

saved = []
from fb_fairseq.streams.checkpoints import SavesMemory

class Iterator(SavesMemory):
    def save_memory(self, folder):
        saved.append(folder)

iterator = Iterator()
trainer = SimpleNamespace(
    data_parallel_rank=1, data_parallel_world_size=1, consolidate_optimizer=lambda: None,
    should_save_checkpoint_on_current_rank=False, always_call_state_dict_during_save_checkpoint=False,
)
cfg = SimpleNamespace(save_dir="folder", no_save=False, maximize_best_checkpoint_metric=False)
checkpoint_utils.save_checkpoint(cfg, trainer, iterator, None)
print(saved)
"""


@pytest.mark.not_fast
def test_patches_are_installed_over_and_under_others_wrappers():
    """Whatever wrapped fairseq's functions first: each patch is installed, once, and the streams' memory is saved."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=REPOSITORY, capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "['folder']", done.stderr
