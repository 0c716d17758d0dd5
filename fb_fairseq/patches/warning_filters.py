"""Hide warnings of fairseq's own code that a user cannot act on."""

import logging
import warnings

MESSAGES = (
    r".*pin_memory.*",  # data loaders on a machine without a GPU
    r".*torch\.cuda\.amp\..*is deprecated.*",
    r".*mismatched key_padding_mask.*",  # boolean padding mask with a float attention mask
    r".*torch\.jit\.script.* is deprecated.*",
    r"(?s).*is validated against ConfigStore schema.*",  # hydra, for each of fairseq's configurations
    r"hydra\.experimental\..* is no longer experimental",  # and from here on, hydra 1.3 with fairseq-fixed
    r"\s*The version_base parameter is not specified",
    r".*Usage of deprecated keyword in package header",
    r"\s*The strict flag in the compose API is deprecated",
    r".*nested tensors is in prototype stage.*",
)


def patch_warning_filters() -> None:
    """Ignore warnings about deprecated calls in fairseq, and a log line that asks for tensorboardX.

    Affects: fairseq 0.12.2, fairseq-fixed 0.12.3.1.
    Remove when: a supported fairseq no longer causes them; none does yet.
    """
    logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)
    for message in MESSAGES:
        warnings.filterwarnings("ignore", message=message)
