"""Patches of fairseq 0.12.2 and fairseq-fixed 0.12.3.1, the two supported versions.

Importing this package applies all of them. Each patch is one function; its docstring says what goes wrong without it.
Where it does not say otherwise (``Affects``, ``Remove when``), both versions need it, those of ``fairseq_fixed.py``
only the latter, and it can be removed when a supported version does without; none does yet. The modules import fairseq
inside their functions, so that the warning filters are in place before fairseq's own modules are imported.

    command_line.py    options, files and folders; --help; mistakes in one line
    data_files.py      binarised data that are cut off
    models.py          models in training and evaluation: hooks, dictionaries and options that fit
    checkpoints.py     checkpoints copied completely or not at all, with the memory of streams; damaged ones
    safe_loading.py    what a checkpoint may contain
    generation.py      --no-repeat-ngram-size, padding words; words that fairseq-eval-lm counts
    stopping.py        Ctrl-C, and a finished run that is started again
    runtime.py         warnings, numpy 2, --log-file, several processes on CPUs and under torchrun
    fairseq_fixed.py   what fairseq-fixed does unlike fairseq 0.12.2; above all, sentences that it leaves out
    wrapping.py        wraps a function of fairseq once
"""

from fb_fairseq.patches import (
    checkpoints,
    command_line,
    data_files,
    fairseq_fixed,
    generation,
    models,
    runtime,
    safe_loading,
    stopping,
)

# A right command runs without these, too.
COMFORT = (
    runtime.patch_warning_filters,  # first: before fairseq's modules are imported
    fairseq_fixed.patch_root_logger,  # imports them
    command_line.patch_error_lines,
    command_line.patch_best_metric,
    runtime.patch_config_copies,  # before fairseq's models are imported, which copy most
    data_files.patch_cut_data,
    command_line.patch_restore_file,
    command_line.patch_save_dir_lock,
    stopping.patch_interruption,
    models.patch_train_step,
)

# Without one of these, a command that is right fails, computes something else, loses data, or runs code or
# fetches files that a checkpoint names.
NEEDED = (
    command_line.patch_command_line,
    models.patch_model_overrides,
    safe_loading.patch_safe_globals,
    safe_loading.patch_foreign_numpy,
    safe_loading.patch_weights_only,
    safe_loading.patch_literal_values,
    models.patch_hub_addresses,
    models.patch_encoder_fast_path,
    runtime.patch_numpy_long,
    generation.patch_ngram_blocking,
    generation.patch_padding_words,
    generation.patch_empty_texts,
    generation.patch_line_scores,
    runtime.patch_log_file,
    runtime.patch_torchrun,
    runtime.patch_ddp_on_cpu,
    stopping.patch_finished_run,
    models.patch_optimizer_step,
    checkpoints.patch_checkpoint_copy,
    checkpoints.patch_checkpoint_reading,
    checkpoints.patch_stream_memory_saving,
    checkpoints.patch_resume_hooks,
    models.patch_meaning_check,
    fairseq_fixed.patch_last_batch,
    fairseq_fixed.patch_batches_of_a_resumed_run,
    fairseq_fixed.patch_diverse_beam,
    fairseq_fixed.patch_source_lengths,
    fairseq_fixed.patch_fused_copies,
)

# In the order in which they are applied: of two that wrap the same function, the second is outermost.
PATCHES = (*COMFORT, *NEEDED)


def apply_patches() -> None:
    """Apply all patches in order. Patches that are already in place are left as they are."""
    for patch in PATCHES:
        patch()


apply_patches()
