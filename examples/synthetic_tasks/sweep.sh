#!/usr/bin/env bash
# Runs a task with several seeds, attention spans and depths, and writes a table and figures of all runs:
#   bash examples/synthetic_tasks/sweep.sh random_walk --seeds "1 2 3" [--spans "8 100"] [--depths "1 2 4"] [--jobs 2]
# --jobs N: number of parallel runs. All other options go to the task's script: README.md.
# --print: print the commands without running them.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/recipe.sh"

here=$repository/examples/synthetic_tasks task_usage=$usage
usage="give a task, --seeds \"N …\" --spans \"N …\" --depths \"N …\" --jobs N --out DIR --print, options\
 of the task's script"
seeds="1 2 3" spans="" depths="" jobs=1 out="" task=${1:-}
case $task in
    "" | -*) fail "the task is missing; $usage" ;;
    recipe | sweep | */*) fail "$task: unknown task; $usage" ;;
    *) [ -f "$here/$task.sh" ] || fail "$task: unknown task; $usage" ;;
esac
shift
others=()
while [ $# -gt 0 ]; do
    case $1 in
        --seeds | --spans | --depths | --jobs | --out | --models)
            case ${2:-} in "" | --*) fail "$1 needs a value" ;; esac
            case $1 in
                --out) ;;
                --models) check_words "$1" "$2" ;;
                --jobs) check_number "$1" "$2" ;;
                *) check_numbers "$1" "$2" ;;
            esac
            printf -v "${1#--}" %s "$2"
            shift 2
            ;;
        --seed | --span) fail "$1: give $1s; $usage" ;;
        --layers) fail "$1: give --depths; $usage" ;;
        --print) printing=yes; others+=("$1"); shift ;;
        --) others+=("$@"); break ;;
        *) others+=("$1"); shift ;;
    esac
done
(usage=$task_usage; parse --models "$models" ${others[@]+"${others[@]}"}) # stops at what the task's script does not take
seeds=$(unique $seeds) spans=$(unique $spans) depths=$(unique $depths)
out=${out:-$repository/runs/$task-sweep}
check_out
start
[ $printing = no ] || count_gpus
share_cores
export FB_FAIRSEQ_SWEEP=yes # the task's script leaves the comparison to this one

# run_script NAME OPTIONS…: run the task's script with its output in OUT/<name>.
run_script() {
    local name=$1
    shift
    if [ $printing = yes ]; then
        comment "== $name"
        bash "$here/$task.sh" --out "$out/$name" "$@" ${others[@]+"${others[@]}"}
        return
    fi
    if ! bash "$here/$task.sh" --out "$out/$name" "$@" ${others[@]+"${others[@]}"} 2>&1 | sed "s/^/[$name] /"; then
        echo "$name" >>"$out/failed"
    fi
}

[ $printing = yes ] || rm -f "$out/failed"
for depth in ${depths:-default}; do
    first_span=yes
    for span in ${spans:-default}; do
        for seed in $seeds; do
            name=seed$seed options=(--seed "$seed")
            wanted=$models
            if [ "$depth" != default ]; then name=layers$depth-$name options+=(--layers "$depth"); fi
            if [ "$span" != default ]; then name=span$span-$name options+=(--span "$span"); fi
            # LSTMs have no span: train them with the first one only.
            if [ $first_span = no ]; then
                wanted=""
                for model in $models; do case $model in *lstm*) ;; *) wanted+="$model " ;; esac; done
            fi
            [ -n "$wanted" ] || continue
            start_run run_script "$name" --models "$wanted" "${options[@]}"
        done
        first_span=no
    done
done
[ $printing = no ] || exit 0
wait_for_runs "$out/failed" "their last lines above"
python "$here/summary.py" "$out"
compare "$out"
