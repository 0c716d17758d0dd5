# Sourced by the environments' scripts, each of which sets
#
#   environment   its name in python -m fb_fairseq rl
#   agents        that are trained
#   small_spans, full_spans
#                 how many steps back attention reaches: empty, the preset's; or several, which are compared
#
# and calls run_agents "$@". A run goes to OUT/<agent>[-span<S>]-seed<N>; the results of all to OUT/results.json.

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$repository/examples/environment.sh"
. "$repository/examples/steps.sh"

usage="give --small (the default) or --full, --seed N or --seeds \"N …\", --out DIR, --agents \"NAME …\", --spans \"N …\",\
 --jobs N (runs at a time), -- options of python -m fb_fairseq rl train"
agents="feedback transformer lstm"
small_spans="" full_spans=""

# once WORDS…: each of them, once.
once() {
    local word all=""
    for word in "$@"; do case " $all " in *" $word "*) ;; *) all+="${all:+ }$word" ;; esac; done
    echo "$all"
}

run_agents() {
    local scale=small argument arguments=() own_agents=$agents agent span number
    for argument in "$@"; do
        case $argument in
            --full | --small) scale=${argument#--} ;;
            *) arguments+=("$argument") ;;
        esac
    done
    small=no input="" out="" agents="" spans="" seeds="" seed="" jobs=1 todo="" extra=()
    parse_options "out agents" "seed seeds spans jobs" ${arguments[@]+"${arguments[@]}"}
    [ -z "$input" ] || fail "$input: there are no data; $usage"
    agents=$(once ${agents:-$own_agents}) seeds=$(once ${seeds:-${seed:-1}})
    scale_option="" number=${scale}_spans spans=$(once ${spans:-${!number}})
    [ $scale = full ] || scale_option=--small
    out=${out:-$repository/runs/$environment-$scale}
    mkdir -p "$out"
    out=$(cd "$out" && pwd)
    cd "$repository"
    make_environment
    share_cores
    rm -f "$out/failed"
    for seed in $seeds; do
        for agent in $agents; do
            for span in ${spans:-preset}; do
                # An LSTM has no span: once is enough.
                if [ "$agent" = lstm ] && [ -n "$spans" ]; then
                    [ "$span" = "${spans%% *}" ] || continue
                    span=preset
                fi
                wait_for_slot
                run_agent "$agent" "$span" "$seed" &
            done
        done
    done
    wait
    [ ! -e "$out/failed" ] || fail "$(tr '\n' ' ' <"$out/failed")stopped; their logs say why. The same command goes on"
    python examples/reinforcement_learning/summary.py "$out"
}

# run_agent AGENT SPAN SEED: train and evaluate, to OUT/<name>/ and OUT/<name>.json
run_agent() {
    local name=$1-seed$3 options=(--seed "$3") run
    if [ "$2" != preset ]; then name=$1-span$2-seed$3 options+=(--span "$2"); fi
    run=$out/$name
    echo "== $name"
    if ! python -m fb_fairseq rl train --environment "$environment" $scale_option --agent "$1" "${options[@]}" --out "$run" \
        ${extra[@]+"${extra[@]}"} >"$run.log" 2>&1 ||
        ! python -m fb_fairseq rl evaluate --path "$run/checkpoint.pt" --out "$run.json" --record "$run.gif" >>"$run.log" 2>&1; then
        echo "== $name stopped: $(tail -n 1 "$run.log")" >&2
        echo "$name" >>"$out/failed"
        return
    fi
    echo "== $name: $(grep "an episode" "$run.log" | tail -n 1)"
}
