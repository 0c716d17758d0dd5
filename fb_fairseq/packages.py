"""Packages that not every command needs: how they are installed, and the line for a missing one."""

import sys

# Optional packages, and the extra of setup.py that installs them.
EXTRAS = {
    **dict.fromkeys(("matplotlib", "tensorboard"), "plot"),
    "PIL": "rl",
    **dict.fromkeys(("sacremoses", "subword_nmt", "rouge_score", "sacrebleu"), "translation"),
    **dict.fromkeys(("transformers", "tokenizers"), "transformers"),
    "gradio": "explore",
}

# fairseq, and what only fairseq brings. setup.py requires it on the versions of Python on which it runs.
FAIRSEQ_PACKAGES = ("fairseq", "fairseq_cli", "hydra", "omegaconf")
FAIRSEQ_VERSIONS = ((3, 10), (3, 12))


def without_fairseq() -> str:
    """The line for a missing fairseq, with the remedy."""
    version = sys.version_info[:2]
    if version not in FAIRSEQ_VERSIONS:
        return "needs fairseq, which does not run on Python {}.{}; use Python 3.10 or 3.12".format(*version)
    package = "fairseq-fixed" if version == (3, 12) else "fairseq"
    return f"needs fairseq, which is not installed; pip install {package}"


def missing_package(error: ImportError) -> str | None:
    """The line for a missing package that an extra installs, or for fairseq; None for others, and for packages that are
    there, but lack what is imported.
    """
    if not isinstance(error, ModuleNotFoundError):
        return None
    if error.name in EXTRAS:
        return f"{error.name} is not installed; pip install 'fb_fairseq[{EXTRAS[error.name]}]'"
    return without_fairseq() if error.name in FAIRSEQ_PACKAGES else None
