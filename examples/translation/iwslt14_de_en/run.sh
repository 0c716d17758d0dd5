#!/usr/bin/env bash
# IWSLT'14 German to English:
#   bash examples/translation/iwslt14_de_en/run.sh IWSLT               # the setting of v3 §6.2 and Table 8, for GPUs
#   bash examples/translation/iwslt14_de_en/run.sh --small MULTI30K    # small models on Multi30k, for a CPU
# IWSLT: the folder iwslt14.tokenized.de-en that fairseq's prepare-iwslt14.sh writes.
# MULTI30K: the folder of Multi30k's task 1, raw (train.de.gz, …).
# --print: print the commands without running them. Options and steps: ../README.md.
. "$(dirname -- "${BASH_SOURCE[0]}")/../../recipe.sh" iwslt14_de_en "$@"
