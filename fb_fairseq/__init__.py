"""Feedback Transformer and All-attention networks for fairseq.

Use it as a fairseq plugin: ``fairseq-train --user-dir fb_fairseq --arch feedback_transformer_lm …``.
fairseq itself imports ``fb_fairseq.tasks`` and ``fb_fairseq.models``. This file imports neither, so that
``fb_fairseq.ops`` and ``fb_fairseq.modules`` run with torch alone.

The folders, of which ``docs/development.md`` says more:

    ops/, modules/                      the mathematics; parameters and stacks of layers
    streams/                            text as parallel streams, and the memory that they carry
    models/, criterions.py, optim.py    fairseq's side of the models
    tasks/, patches/                    --task streaming_lm; what is patched in fairseq
    transformers/                       the models in Hugging Face transformers
    pretrained/                         trained models that come with the package, in plain PyTorch
    commands/                           what ``fb-fairseq`` runs
    papers/                             the papers' experiments and results, which nothing above imports

Modules beside them:

    errors.py         errors that the user can fix
    packages.py       optional packages, and fairseq, where they are missing
    command_line.py   how options are declared; help texts and mistakes of ``fb-fairseq`` (__main__.py)
    printing.py       what commands print
    literals.py       values that are written as Python expressions
    files.py          files that appear whole or not at all
    folders.py        folders whose files do, and to which one run writes
    interruption.py   Ctrl-C and kill in training
    tensor_files.py   files of tensors, read as data only; what checkpoints may hold
    trained_model.py  a trained model, whatever it was read from
    checksums.py      checksums of files and dictionaries
    meaning.py        options that decide what a file's numbers mean
    symbols.py        special symbols of dictionaries, and words that are padding
    facts.py          how a model was made, as far as its files say
    byte_codec.py     text as a sequence of bytes
    hardware.py       the names of processors
    drawing/          figures: their style, marks and layout, and the names and colours of models
"""

import importlib
import os
import sys

# The same check as in setup.py. (On 3.11, and from 3.13 on, only what needs fairseq refuses to run.)
if sys.version_info < (3, 10):  # noqa: UP036
    sys.exit("fb_fairseq does not run on Python {}.{}; use Python 3.10 or 3.12".format(*sys.version_info))

__version__ = "0.1.0"


class _UserDir(list):
    """The package's ``__path__``, which registers tasks and models when fairseq looks for a ``--user-dir`` in it.

    fairseq imports the folder's tasks and models, unless the package itself is imported already, as after ``import
    fb_fairseq`` in a notebook. Then it asks only whether ``user_dir in fb_fairseq.__path__``, and takes a yes to mean
    that they are registered. This question is the one sign that they are wanted: so answering it imports them.
    """

    def __contains__(self, folder: object) -> bool:
        # fairseq names an installed plugin "…/site-packages/fairseq/../fb_fairseq".
        is_this = os.path.realpath(str(folder)) in map(os.path.realpath, self)
        if is_this:
            for name in ("tasks", "models"):
                importlib.import_module(f"{__name__}.{name}")
        return is_this


__path__ = _UserDir(__path__)
