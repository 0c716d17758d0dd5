#!/usr/bin/env bash
# text8 as letters:
#   bash examples/language_modeling/text8/run.sh text8.zip       # enwik8's setting (v3 Table 9), for GPUs
#   bash examples/language_modeling/text8/run.sh --small TEXT    # small models, for a CPU; any text
# --print: print the commands without running them. Options and steps: ../README.md.
. "$(dirname -- "${BASH_SOURCE[0]}")/../../recipe.sh" text8 "$@"
