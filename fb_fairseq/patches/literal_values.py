"""Keep fairseq from running options as code."""

import sys
from types import SimpleNamespace

from fb_fairseq.literals import parse_literal

PACKAGES = ("fairseq", "fairseq_cli")


def patch_literal_values() -> None:
    """Let fairseq's ``eval`` read plain values only.

    Options such as ``adaptive_softmax_cutoff`` also come out of checkpoints, so that a checkpoint could run code even
    if its tensors are loaded as weights only. In each of fairseq's modules the name ``eval`` is bound to
    ``parse_literal``, which Python finds before its own.

    Affects: fairseq 0.12.2, fairseq-fixed 0.12.3.1.
    Remove when: a supported fairseq does not call ``eval``; none does yet.
    """
    import fairseq.models  # noqa: F401  all modules that a checkpoint's configuration can reach
    import fairseq.tasks  # noqa: F401

    for name, module in list(sys.modules.items()):
        name = getattr(getattr(module, "__spec__", None), "name", name) if name == "__main__" else name
        if name.partition(".")[0] in PACKAGES and not hasattr(module, "eval"):
            module.eval = parse_literal
            if name.startswith("fairseq_cli.") and hasattr(module, "ast"):  # ast.literal_eval: errors in one line
                module.ast = SimpleNamespace(literal_eval=parse_literal)
