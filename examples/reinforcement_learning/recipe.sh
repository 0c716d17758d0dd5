# Sourced by the scripts of the environments. Each of them sets
#
#   environment   name of the environment in python -m fb_fairseq rl
#   agents        names of the agents to train
#   small_spans, full_spans
#                 attention spans to compare with --small and --full; empty for the preset's span only
#   small_seeds, full_seeds
#                 default of --seeds
#
# and calls run_agents "$@". Each run is written to OUT/<agent>[-span<S>]-seed<N>, the results of all to OUT/results.json.

. "$(dirname -- "${BASH_SOURCE[0]}")/../steps.sh"

usage="give --small (the default) or --full, --seed N or --seeds \"N …\", --out DIR, --agents \"NAME …\",\
 --spans \"N …\", --jobs N (number of parallel runs), --print, -- options of python -m fb_fairseq rl train"
agents="feedback transformer lstm"
small_spans="" full_spans=""
small_seeds=1 full_seeds="1 2 3 4 5 6 7 8 9 10" # "averaged over 10 trials" (v3 §4.2.2, §6.1)

# run_agents ARGUMENTS…: parse the arguments of a script, train and evaluate all agents, summarise the results.
run_agents() {
    local scale=small argument arguments=() default_agents=$agents agent span
    local scale_spans scale_seeds
    for argument in "$@"; do
        case $argument in
            --full | --small) scale=${argument#--} ;;
            *) arguments+=("$argument") ;;
        esac
    done
    small=no input="" out="" agents="" spans="" seeds="" seed="" jobs=1 todo="" extra=()
    parse_options "out agents" "seed seeds+ spans+ jobs" ${arguments[@]+"${arguments[@]}"}
    [ -z "$input" ] || fail "$input: unexpected argument, the environments need no data; $usage"
    check_names --agents "${agents:-$default_agents}" "feedback transformer lstm"
    [ -z "$seed" ] || [ -z "$seeds" ] || fail "--seed, --seeds: give one of them"
    scale_option="" scale_spans=${scale}_spans scale_seeds=${scale}_seeds
    agents=$(unique ${agents:-$default_agents}) spans=$(unique ${spans:-${!scale_spans}})
    seeds=$(unique ${seeds:-${seed:-${!scale_seeds}}})
    [ $scale = full ] || scale_option=--small
    out=${out:-$repository/runs/$environment-$scale}
    start
    share_cores
    [ $printing = yes ] || rm -f "$out/failed"
    for seed in $seeds; do
        for agent in $agents; do
            for span in ${spans:-preset}; do
                # An LSTM has no span: it is trained once per seed.
                if [ "$agent" = lstm ] && [ -n "$spans" ]; then
                    [ "$span" = "${spans%% *}" ] || continue
                    span=preset
                fi
                start_run run_agent "$agent" "$span" "$seed"
            done
        done
    done
    [ $printing = yes ] || wait_for_runs "$out/failed" "their logs in $out"
    comment "summarise"
    run python examples/reinforcement_learning/summary.py "$out" "$environment" "$scale"
    compare "$out"
}

# run_agent AGENT SPAN SEED: train and evaluate one agent; writes OUT/<name>/ and OUT/<name>.json, .gif, .log
# and .hardware.
run_agent() {
    local name=$1-seed$3 options=(--seed "$3") run train evaluate
    if [ "$2" != preset ]; then name=$1-span$2-seed$3 options+=(--span "$2"); fi
    run=$out/$name
    train=(python -m fb_fairseq rl train --environment "$environment" $scale_option --agent "$1" "${options[@]}"
        --out "$run" ${extra[@]+"${extra[@]}"})
    evaluate=(python -m fb_fairseq rl evaluate --path "$run/checkpoint.pt" --out "$run.json" --record "$run.gif")
    if [ $printing = yes ]; then
        comment "train and evaluate $name"
        show "" "${train[@]}"
        show "" "${evaluate[@]}"
        return
    fi
    echo "== $name"
    [ -e "$run.hardware" ] || record_hardware "$run"
    if ! "${train[@]}" >"$run.log" 2>&1 || ! "${evaluate[@]}" >>"$run.log" 2>&1; then
        echo "== $name failed: $(tail -n 1 "$run.log")" >&2
        echo "$name" >>"$out/failed"
        return
    fi
    echo "== $name: $(grep "per episode" "$run.log" | tail -n 1)"
}
