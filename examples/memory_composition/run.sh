#!/usr/bin/env bash
# Compares memory compositions (v1 Table 5, v3 Figures 5 and 8) on the blocked random walk and on character-level PTB:
#   bash examples/memory_composition/run.sh PTB              # the papers' setting, 6 layers, for GPUs
#   bash examples/memory_composition/run.sh --small [PTB]    # about two hours on one core; without PTB, the walk only
# --print: print the commands without running them. Options: README.md.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/../steps.sh"

examples=$repository/examples
usage="give PTB or --small [PTB], and --out DIR --layers N --seeds \"N …\" --jobs N --print; for the walk --walk-updates N;\
 for PTB --updates N --finetune-updates N"
small=no input="" out="" layers="" seeds="" jobs=1 walk_updates="" own_updates="" own_finetune_updates="" extra=()
parse_options "out" "seeds+ layers jobs walk-updates updates finetune-updates" "$@"
[ ${#extra[@]} = 0 ] || fail "--: this recipe takes no further options; $usage"
printed=""
[ $printing = no ] || printed=--print
scale=--full ptb_scale="" default=6
if [ $small = yes ]; then scale=--small ptb_scale=--small default=3; fi
[ -n "$input$printed" ] || [ $small = yes ] || fail "PTB is missing; $usage"
layers=${layers:-$default}
# The full-size setting of PTB (v3 Table 9) has 6 layers; language_modeling/char_ptb/README.md says how to change them.
[ $small = yes ] || [ "$layers" = 6 ] || fail "--layers $layers: the papers' setting for PTB has 6; use 6 or --small"
if [ $printing = yes ] && [ $small = no ] && [ -z "$input" ]; then input=$repository/DATA; fi
absolute input
# (The walks, which take long, come before PTB.)
[ -z "$input" ] || [ -n "$printed" ] || [ -s "$input/ptb.train.txt" ] || [ -s "$input/ptb.train.txt.gz" ] ||
    fail "PTB $input: no ptb.train.txt or ptb.train.txt.gz in this folder; give the folder of PTB's files"
out=${out:-$repository/runs/memory_composition${ptb_scale:+-small}}
check_out
start
[ -z "$printed" ] || count_gpus

models="weighted average same-and-lower relative_transformer_lm"
for layer in $(seq 0 "$layers"); do models+=" layer$layer"; done
bash "$examples/synthetic_tasks/sweep.sh" blocked_random_walk $scale --seeds "${seeds:-1 2 3}" --depths "$layers" \
    --jobs "$jobs" --models "$models" --out "$out/walk" $printed ${walk_updates:+--updates "$walk_updates"}
if [ -n "$input" ]; then
    shape=()
    if [ $small = yes ]; then
        shape=(--layers "$layers")
    else
        models=${models/relative_transformer_lm/relative_transformer_lm_char_ptb}
    fi
    bash "$examples/language_modeling/char_ptb/run.sh" $ptb_scale "$input" --steps "prepare train finetune evaluate" \
        ${shape[@]+"${shape[@]}"} --seeds "${seeds:-1}" --jobs "$jobs" --models "$models" --out "$out/char_ptb" $printed \
        ${own_updates:+--updates "$own_updates"} ${own_finetune_updates:+--finetune-updates "$own_finetune_updates"}
fi
[ -n "$printed" ] || python "$examples/memory_composition/draw.py" "$out" "$layers"
