"""Patches of fairseq 0.12.2 and fairseq-fixed 0.12.3.1, the two supported versions.

Importing this package applies all of them. Each patch is one function; its docstring says what goes wrong without it.
Where it does not say otherwise (``Affects``, ``Remove when``), both versions need it, those of ``fairseq_fixed.py``
only the latter, and it can be removed when a supported version does without; none does yet. The modules import fairseq
inside their functions, so that the warning filters are in place before fairseq's own modules are imported.

    command_line.py    options, --help
    error_lines.py     mistakes in one line
    training_files.py  --restore-file, --save-dir, --log-file; best_metric.py: --best-checkpoint-metric
    data_files.py      binarised data that are cut off, wrong dictionaries
    models.py          models in fairseq's trainer
    meaning.py         dictionaries and options of a checkpoint's numbers
    overrides.py       --model-overrides
    checkpoints.py     checkpoints copied completely or not at all; damaged ones; accounts.py: what they say of their
                       training
    stream_hooks.py    the memory of streams beside checkpoints
    safe_loading.py    what a checkpoint may contain
    numpy_pickles.py   numpy's scalars and arrays in it
    generation.py      --no-repeat-ngram-size, padding words
    bleu.py            BLEU of texts without words
    interruption.py    Ctrl-C and kill; training_signals.py: how a training heeds them
    finished_run.py    a finished run that is started again
    stopping_state.py  the state of early stopping in checkpoints; due_validation.py: a validation that one lacks
    limits.py          the options that end training
    libraries.py       warnings, OmegaConf, numpy 2
    processes.py       several processes, on CPUs and under torchrun
    fairseq_fixed.py   what fairseq-fixed does unlike fairseq 0.12.2; above all, sentences that it leaves out
    wrapping.py        wraps a function of fairseq once; those of fairseq-train; which models are ours
"""

from fb_fairseq.patches import (
    best_metric,
    bleu,
    checkpoints,
    command_line,
    data_files,
    error_lines,
    fairseq_fixed,
    finished_run,
    generation,
    interruption,
    libraries,
    meaning,
    models,
    numpy_pickles,
    overrides,
    processes,
    safe_loading,
    stopping_state,
    stream_hooks,
    training_files,
)

# In the order in which they are applied: of two that wrap the same function, the second is outermost.
PATCHES = (
    # A right command runs without these, too.
    libraries.patch_warning_filters,  # no warnings about fairseq's own calls; first, before it is imported
    fairseq_fixed.patch_root_logger,  # no DEBUG lines of other libraries; imports fairseq's models
    error_lines.patch_error_lines,  # a user's mistakes in one line
    best_metric.patch_best_metric,  # a wrong --best-checkpoint-metric costs no updates
    libraries.patch_config_copies,  # a second less at each start; before the models of this package
    data_files.patch_cut_data,  # found when they are loaded, not in the middle of an epoch
    data_files.patch_wrong_dictionary,  # one line, with its name
    training_files.patch_restore_file,  # a --restore-file that is missing is not training from scratch
    training_files.patch_save_dir_lock,  # two runs do not overwrite each other's checkpoints
    interruption.patch_interruption,  # Ctrl-C and kill cost no updates
    # Without one of these, a command that is right fails, computes something else, loses data, or runs code or
    # fetches files that a checkpoint names.
    command_line.patch_command_line,  # --batch-size of streams, half precision on a CPU; whole --help
    overrides.patch_model_overrides,  # no misspelt names
    safe_loading.patch_safe_globals,  # fairseq's checkpoints as data only
    numpy_pickles.patch_foreign_numpy,  # other programs' files beside them
    safe_loading.patch_literal_values,  # no code in options
    safe_loading.patch_hub_addresses,  # no downloads that a checkpoint names
    models.patch_encoder_fast_path,  # left-padded batches in evaluation
    libraries.patch_numpy_long,  # numpy 2
    generation.patch_ngram_blocking,  # --no-repeat-ngram-size
    generation.patch_padding_words,  # words that pad a dictionary are never generated
    bleu.patch_empty_texts,  # BLEU of a text without words
    training_files.patch_log_file,  # each line once
    processes.patch_torchrun,  # its processes form one group
    processes.patch_ddp_on_cpu,  # several processes on CPUs
    stopping_state.patch_stopping_state,  # --patience and a plateau survive resuming
    finished_run.patch_finished_run,  # the same command twice trains once
    models.patch_optimizer_step,  # adaptive spans within their bounds
    checkpoints.patch_checkpoint_copy,  # a complete checkpoint_last.pt at any moment
    checkpoints.patch_checkpoint_reading,  # no flipped bits, no files of another machine
    stream_hooks.patch_stream_memory_saving,  # memory beside each checkpoint
    stream_hooks.patch_resume_hooks,  # and back
    meaning.patch_meaning_check,  # dictionaries and options of a checkpoint's numbers
    fairseq_fixed.patch_last_batch,  # every sentence is read
    fairseq_fixed.patch_batches_of_a_resumed_run,  # once an epoch
    fairseq_fixed.patch_diverse_beam,  # as in its paper
    fairseq_fixed.patch_source_lengths,  # --match-source-len
    fairseq_fixed.patch_fused_copies,  # encoders saved by fairseq 0.12.2
)


def apply_patches() -> None:
    """Apply all patches in order. Patches that are already in place are left as they are."""
    for patch in PATCHES:
        patch()


apply_patches()
