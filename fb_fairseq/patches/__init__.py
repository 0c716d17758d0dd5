"""Patches of fairseq 0.12.2 and fairseq-fixed 0.12.3.1, the two supported versions.

Importing this package applies all of them. Each patch is one function; its docstring says what goes wrong without it.
Where it does not say otherwise (``Affects``, ``Remove when``), both versions need it, those of ``fairseq_fixed.py``
only the latter, and it can be removed when a supported version does without; none does yet. The modules import fairseq
inside their functions, so that the warning filters are in place before fairseq's own modules are imported.

    command_line.py    options: mistakes, values with which training would go wrong unnoticed, files; --help
    error_lines.py     one line for a mistake
    data_files.py      damaged data, and data that do not fit the dictionary
    models.py          models in training and evaluation: hooks, criterions and dictionaries that fit
    checkpoints.py     checkpoints written completely or not at all, with the memory of streams; damaged ones
    safe_loading.py    what a checkpoint may contain
    generation.py      --no-repeat-ngram-size and --replace-unk; words that fairseq-eval-lm counts
    stopping.py        Ctrl-C, and a finished run that is started again
    runtime.py         warnings, numpy 2, --log-file, several processes on CPUs and under torchrun
    fairseq_fixed.py   what fairseq-fixed does unlike fairseq 0.12.2; above all, sentences that it leaves out
    wrapping.py        wraps a function of fairseq once
"""

from fb_fairseq.patches.checkpoints import (
    patch_checkpoint_copy,
    patch_checkpoint_reading,
    patch_checkpoint_writing,
    patch_load_errors,
    patch_resume_hooks,
    patch_stream_memory_saving,
)
from fb_fairseq.patches.command_line import (
    patch_command_line,
    patch_hydra_values,
    patch_restore_file,
    patch_save_dir_lock,
)
from fb_fairseq.patches.data_files import patch_dictionary_errors, patch_indexed_data
from fb_fairseq.patches.error_lines import patch_empty_splits, patch_error_lines
from fb_fairseq.patches.fairseq_fixed import (
    patch_batches_of_a_resumed_run,
    patch_diverse_beam,
    patch_fused_copies,
    patch_last_batch,
    patch_root_logger,
    patch_source_lengths,
)
from fb_fairseq.patches.generation import (
    patch_align_dict_default,
    patch_alignment_format,
    patch_alignment_request,
    patch_empty_texts,
    patch_line_scores,
    patch_ngram_blocking,
    patch_search_values,
)
from fb_fairseq.patches.models import (
    patch_criterion_check,
    patch_dictionary_check,
    patch_encoder_fast_path,
    patch_hub_addresses,
    patch_model_loading,
    patch_optimizer_step,
    patch_train_step,
)
from fb_fairseq.patches.runtime import (
    patch_config_copies,
    patch_ddp_on_cpu,
    patch_log_file,
    patch_numpy_long,
    patch_torchrun,
    patch_warning_filters,
)
from fb_fairseq.patches.safe_loading import (
    patch_foreign_numpy,
    patch_literal_values,
    patch_safe_globals,
    patch_weights_only,
)
from fb_fairseq.patches.stopping import patch_finished_run, patch_interruption

# Without one of these, what is right runs all the same: they find mistakes sooner and report them in one line, hide
# warnings, save time, or keep what Ctrl-C would lose.
COMFORT = (
    patch_warning_filters,  # first: before fairseq's modules are imported
    patch_root_logger,  # imports them
    patch_error_lines,
    patch_empty_splits,
    patch_config_copies,  # before fairseq's models are imported, which copy most
    patch_hydra_values,
    patch_indexed_data,
    patch_dictionary_errors,
    patch_search_values,
    patch_model_loading,
    patch_load_errors,
    patch_checkpoint_writing,
    patch_restore_file,
    patch_save_dir_lock,
    patch_interruption,
    patch_train_step,
)

# Without one of these, a command that is right fails, computes something else, loses data, or runs code or
# fetches files that a checkpoint names.
NEEDED = (
    patch_command_line,
    patch_criterion_check,
    patch_safe_globals,
    patch_foreign_numpy,
    patch_weights_only,
    patch_literal_values,
    patch_hub_addresses,
    patch_encoder_fast_path,
    patch_numpy_long,
    patch_ngram_blocking,
    patch_align_dict_default,
    patch_alignment_format,
    patch_alignment_request,
    patch_empty_texts,
    patch_line_scores,
    patch_log_file,
    patch_torchrun,
    patch_ddp_on_cpu,
    patch_finished_run,
    patch_optimizer_step,
    patch_checkpoint_copy,
    patch_checkpoint_reading,
    patch_stream_memory_saving,
    patch_resume_hooks,
    patch_dictionary_check,
    patch_last_batch,
    patch_batches_of_a_resumed_run,
    patch_diverse_beam,
    patch_source_lengths,
    patch_fused_copies,
)

# In the order in which they are applied: of two that wrap the same function, the second is outermost.
PATCHES = (*COMFORT, *NEEDED)


def apply_patches() -> None:
    """Apply all patches in order. Patches that are already in place are left as they are."""
    for patch in PATCHES:
        patch()


apply_patches()
