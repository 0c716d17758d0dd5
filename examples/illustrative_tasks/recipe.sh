# Sourced by the tasks' scripts, each of which sets
#
#   task          its name in python -m fb_fairseq.illustrative_tasks
#   small_setting, full_setting
#                 functions: set the arrays sizes (options of the data) and, for --small, updates and span; full_setting
#                 may leave these out
#   models        architectures
#
# and calls run_task "$@". A run goes to OUT/<architecture>; the accuracies of all to OUT/results.json.

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$repository/examples/environment.sh"
. "$repository/examples/steps.sh"

usage="give --small (the default) or --full, --seed N, --out DIR, --models \"NAME …\", --span N, --layers N, --updates N,\
 -- options of fairseq-train"
models="feedback_transformer_lm relative_transformer_lm streaming_lstm_lm"

run_task() {
    local scale=small argument arguments=() model own_models=""
    for argument in "$@"; do
        case $argument in
            --full | --small) scale=${argument#--} ;;
            *) arguments+=("$argument") ;;
        esac
    done
    own_models=$models models=""
    small=no input="" out="" layers="" own_updates="" seed=1 extra=() todo="" span=""
    local own_span=""
    parse_options "out models" "seed span layers updates" ${arguments[@]+"${arguments[@]}"}
    [ -z "$input" ] || fail "$input: the data are made here; $usage"
    models=${models:-$own_models} own_span=$span
    updates=10000 span=100
    if [ $scale = small ]; then
        # Equal sizes for all; the LSTM has no feed-forward sublayers.
        shape=(--decoder-layers 2 --decoder-embed-dim 64)
        attention=(--decoder-ffn-embed-dim 256 --decoder-attention-heads 4 --decoder-normalize-before)
        training=(--tokens-per-sample 32 --batch-size 64 --lr 0.001 --clip-norm 1.0 --lr-scheduler cosine
            --warmup-updates 100)
        updates=1000 span=8
    else
        # v3 Table 9. It does not say for how many updates.
        shape=(--decoder-layers 4 --decoder-embed-dim 256 --dropout 0.2)
        attention=(--decoder-ffn-embed-dim 1024 --decoder-attention-heads 4 --decoder-normalize-before
            --attention-dropout 0.2)
        training=(--tokens-per-sample 64 --batch-size 512 --lr 0.0001 --clip-norm 0.1 --lr-scheduler fixed
            --warmup-updates 1000)
    fi
    ${scale}_setting
    updates=${own_updates:-$updates} span=${own_span:-$span}
    [ -z "$layers" ] || shape+=(--decoder-layers "$layers")
    out=${out:-$repository/runs/$task-$scale-seed$seed}
    mkdir -p "$out"
    out=$(cd "$out" && pwd)
    cd "$repository"
    make_environment
    make_data
    cpu=""
    if [ "$(python -c 'import torch; print(torch.cuda.device_count())')" = 0 ]; then cpu=--cpu; fi
    for model in $models; do train_and_evaluate "$model"; done
    collect_results "$out"
    draw_curves "$out" accuracy
}

# Data of the seed and the sizes, unless they are there.
make_data() {
    local wanted="$task --seed $seed ${sizes[*]}"
    if [ -e "$out/data.setting" ]; then
        [ "$(cat "$out/data.setting")" = "$wanted" ] ||
            fail "$out: holds other data ($(cat "$out/data.setting")); give another --out, or remove it"
        return
    fi
    echo "== data: $wanted"
    python -m fb_fairseq.illustrative_tasks "$task" --seed "$seed" "${sizes[@]}" --out "$out/text"
    rm -rf "$out/data"
    fairseq-preprocess --source-lang input --target-lang label --trainpref "$out/text/train" --validpref "$out/text/valid" \
        --testpref "$out/text/test" --destdir "$out/data" --workers 1 >"$out/preprocess.out" 2>&1 ||
        fail "preprocessing stopped: $(tail -n 1 "$out/preprocess.out"); $out/preprocess.out says more"
    echo "$wanted" >"$out/data.setting"
}

train_and_evaluate() {
    local run=$out/$1 options=()
    case $1 in *lstm*) ;; *) options=("${attention[@]}" --attention-span "$span") ;; esac
    run_training "$run" "$updates" "$out/data" --user-dir fb_fairseq --task streaming_lm --labels --criterion lm_loss \
        --arch "$1" "${shape[@]}" ${options[@]+"${options[@]}"} --optimizer adam "${training[@]}" \
        --best-checkpoint-metric accuracy --maximize-best-checkpoint-metric --validate-interval-updates $((updates / 5 + 1)) \
        --validate-interval 1000000 --save-interval-updates $((updates / 5 + 1)) --save-interval 1000000 \
        --keep-interval-updates 1 --no-epoch-checkpoints --seed "$seed" $cpu --log-format json --log-interval 25 \
        ${extra[@]+"${extra[@]}"}
    python -m fb_fairseq.evaluate_labels "$out/data" --path "$run/checkpoint_best.pt" $cpu --out "$run.accuracy" \
        >"$run.eval" 2>&1 || fail "evaluation stopped: $(tail -n 1 "$run.eval"); $run.eval says more"
    python - "$run" "$updates" "$span" "$seed" <<'PY'
import json, os, re, sys
run, (updates, span, seed) = sys.argv[1], map(int, sys.argv[2:])
parameters = int(re.findall(r"shared model params: ([\d,]+)", open(f"{run}.log").read())[-1].replace(",", ""))
result = json.load(open(f"{run}.accuracy"))
result.update(parameters=parameters, updates=updates, seed=seed, seconds=int(open(f"{run}.seconds").read()))
if "lstm" not in os.path.basename(run):
    result["attention_span"] = span
json.dump(result, open(f"{run}.json", "w"))
print(f"== {os.path.basename(run)}: {result['accuracy']:.2f} % of the labels, {result['sequence_accuracy']:.2f} % of the sequences")
PY
}
