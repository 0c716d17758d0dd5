"""Patches of fairseq 0.12.2 and fairseq-fixed 0.12.3.1, the two supported versions.

Importing this package applies all of them. Each patch is one function; its docstring says what goes wrong without it,
which of the two versions it affects, and when it can be removed. The modules import fairseq inside their functions, so
that the warning filters are in place before fairseq's own modules are imported.
"""

from fb_fairseq.patches.checkpoint_loading import (
    patch_checkpoint_reading,
    patch_load_errors,
    patch_resume_hooks,
)
from fb_fairseq.patches.checkpoint_saving import (
    patch_checkpoint_copy,
    patch_checkpoint_writing,
    patch_stream_memory_saving,
)
from fb_fairseq.patches.command_line import patch_command_line, patch_hydra_values
from fb_fairseq.patches.config_copies import patch_config_copies
from fb_fairseq.patches.data_files import patch_dictionary_errors, patch_indexed_data
from fb_fairseq.patches.encoder_layer import patch_encoder_fast_path
from fb_fairseq.patches.error_lines import patch_error_lines
from fb_fairseq.patches.generation import (
    patch_align_dict_default,
    patch_alignment_format,
    patch_alignment_request,
    patch_ngram_blocking,
    patch_search_values,
)
from fb_fairseq.patches.interruption import patch_interruption
from fb_fairseq.patches.literal_values import patch_literal_values
from fb_fairseq.patches.log_file import patch_log_file
from fb_fairseq.patches.model_loading import patch_model_loading
from fb_fairseq.patches.numpy_compat import patch_numpy_long
from fb_fairseq.patches.safe_globals import patch_safe_globals, patch_weights_only
from fb_fairseq.patches.save_dir import patch_restore_file, patch_save_dir_lock
from fb_fairseq.patches.torchrun import patch_ddp_on_cpu, patch_torchrun
from fb_fairseq.patches.warning_filters import patch_warning_filters

PATCHES = (
    patch_warning_filters,
    patch_error_lines,
    patch_config_copies,
    patch_command_line,
    patch_hydra_values,
    patch_safe_globals,
    patch_weights_only,
    patch_literal_values,
    patch_encoder_fast_path,
    patch_numpy_long,
    patch_ngram_blocking,
    patch_align_dict_default,
    patch_alignment_format,
    patch_search_values,
    patch_alignment_request,
    patch_log_file,
    patch_torchrun,
    patch_ddp_on_cpu,
    patch_indexed_data,
    patch_dictionary_errors,
    patch_checkpoint_copy,
    patch_checkpoint_writing,
    patch_stream_memory_saving,
    patch_checkpoint_reading,
    patch_model_loading,
    patch_restore_file,
    patch_save_dir_lock,
    patch_interruption,
    # These two wrap the same method, the last one outermost.
    patch_load_errors,
    patch_resume_hooks,
)


def apply_patches() -> None:
    """Apply all patches in order. Patches that are already in place are left as they are."""
    for patch in PATCHES:
        patch()


apply_patches()
