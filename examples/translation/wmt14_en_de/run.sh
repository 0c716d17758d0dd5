#!/usr/bin/env bash
# WMT'14 English to German with the big Transformer:
#   bash examples/translation/wmt14_en_de/run.sh WMT                 # the setting of v3 §4.2.1 and Table 8, for GPUs
#   bash examples/translation/wmt14_en_de/run.sh --small MULTI30K    # small models on Multi30k, for a CPU
# WMT: the unpacked wmt16_en_de.tar.gz (32K joint BPE).
# MULTI30K: the folder of Multi30k's task 1, raw (train.de.gz, …).
# Models: transformer, feedback (with shared projections: "in experiments on large datasets", v3 §4), initialised (with
# per-layer projections), and deep-encoder: 12 encoder and 2 decoder layers with LayerDrop (v3 §4.2.1: 29.0 BLEU).
# --print: print the commands without running them. Options and steps: ../README.md.
. "$(dirname -- "${BASH_SOURCE[0]}")/../../recipe.sh" wmt14_en_de "$@"
