"""lm-evaluation-harness on a model that ``fb-fairseq export`` has written.

    pip install lm-eval
    python examples/language_modeling/lm_eval/run.py --model hf --tasks bytes --batch_size 4 \\
        --model_args pretrained=model,backend=causal,add_bos_token=False,max_length=100000

The options are those of the command ``lm_eval``. This script registers the models first, and adds the tasks of this
folder: ``bytes`` reads ``valid.txt`` in the current folder, ``cloze`` reads ``cloze.jsonl``. Copy them to make tasks of
your own (``--include_path``). ``docs/transformers.md`` explains the arguments of the model.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../.."))

import fb_fairseq.transformers  # noqa: F401  registers the models

# isort: split
from lm_eval.__main__ import cli_evaluate

if __name__ == "__main__":
    if not any(argument.split("=")[0] == "--include_path" for argument in sys.argv):
        sys.argv += ["--include_path", os.path.dirname(os.path.abspath(__file__))]
    cli_evaluate()
