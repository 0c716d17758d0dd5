#!/usr/bin/env bash
# enwik8 as bytes:
#   bash examples/language_modeling/enwik8/run.sh enwik8.zip      # the setting of v3 Table 9, for GPUs
#   bash examples/language_modeling/enwik8/run.sh --small TEXT    # small models, for a CPU; any text will do
# --print: print the commands without running them. Options and steps: ../README.md.
. "$(dirname -- "${BASH_SOURCE[0]}")/../../recipe.sh" enwik8 "$@"
