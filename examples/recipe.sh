#!/usr/bin/env bash
# Runs an experiment from its data to its figures, in an environment that is created if needed:
#   bash examples/recipe.sh NAME [DATA] [options]
# --print: print the commands without running them. NAME, options: docs/recipes.md. PYTHON=…, FB_FAIRSEQ_VENV=…: see environment.sh.
. "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"
case ${1:-} in "" | -*) fail "the recipe is missing; give one, such as copy (docs/recipes.md)" ;; esac
recipe "$@"
