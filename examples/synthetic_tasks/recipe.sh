# Sourced by the scripts of the tasks. A task's script defines the following and calls run_task "$@":
#
#   task          name of the task in python -m fb_fairseq synthetic-tasks
#   small_setting, full_setting
#                 functions: set the array sizes (options of synthetic-tasks), and what differs from choose_setting
#   models        default of --models: architectures, or memory compositions (see composition_options in ../options.sh)
#   graded        the size that --curriculum varies; unset if the task has none
#
# A run goes to OUT/<model>, the accuracies of all runs to OUT/results.json; the first stages of a curriculum go to
# OUT/<graded>-<N>. Several --seeds are left to sweep.sh.

. "$(dirname -- "${BASH_SOURCE[0]}")/../steps.sh"

data_sizes="train valid test size length test-length shortest longest variables statements highest"
data_words="conditions blocks" data_switches="nested-assignments free-first-move"
usage="give --small (the default) or --full, --seed N or --seeds \"N …\", --jobs N, --out DIR, --models \"NAME …\",\
 --span N, --fixed-span, --layers N, --updates N, --curriculum \"N …\", --print, the task's own options\
 (among --$(echo "$data_sizes $data_words $data_switches" | sed 's/ /, --/g')), -- options of fairseq-train"
models="feedback_transformer_lm relative_transformer_lm streaming_lstm_lm"
first_span=8 # initial length of adaptive spans, in steps

# parse ARGUMENTS…: read the command line. Sets $scale, $fixed, $switches, and the variables of parse_options.
parse() {
    local argument arguments=() option model
    scale=small fixed=no switches=""
    for argument in "$@"; do
        case $argument in
            --full | --small) scale=${argument#--} ;;
            --fixed-span) fixed=yes ;;
            --nested-assignments | --free-first-move) switches+=" $argument" ;;
            *) arguments+=("$argument") ;;
        esac
    done
    small=no input="" out="" models="" layers="" own_updates="" seed="" seeds="" jobs="" extra=() todo="" span=""
    curriculum=""
    for option in $data_sizes $data_words; do printf -v "${option//-/_}" %s ""; done
    parse_options "out models $data_words" "seed seeds+ jobs span layers updates curriculum+ $data_sizes" \
        ${arguments[@]+"${arguments[@]}"}
    [ -z "$input" ] || fail "$input: unexpected argument, the data is generated; $usage"
    [ -z "$seed" ] || [ -z "$seeds" ] || fail "--seed, --seeds: give one of them"
    seeds=$(unique ${seeds:-${seed:-1}})
    case $seeds in
        *\ *) ;;
        *) [ -z "$jobs" ] || fail "--jobs $jobs: only with several --seeds" ;;
    esac
    for model in $models; do composition_options "$model" >/dev/null; done # stops at an unknown model
}

# sweep ARGUMENTS…: let sweep.sh run the task with several seeds. Its options are lists.
sweep() {
    local arguments=(--out "$repository/runs/$task-$scale" --models "$models")
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        case $1 in
            --span) arguments+=(--spans) ;;
            --layers) arguments+=(--depths) ;;
            *) arguments+=("$1") ;;
        esac
        shift
    done
    exec bash "$repository/examples/synthetic_tasks/sweep.sh" "$task" "${arguments[@]}" "$@"
}

# run_task ARGUMENTS…: generate the data, train and evaluate all models, and draw their learning curves.
run_task() {
    local model stage stages=() task_models=$models own_span final_sizes
    parse "$@"
    [ -z "$curriculum" ] || [ -n "${graded:-}" ] ||
        fail "--curriculum: $task.sh has none; only algorithmic.sh, copy.sh, reverse.sh and counting.sh do"
    models=${models:-$task_models} own_span=$span
    case $seeds in *\ *) sweep "$@" ;; esac
    seed=$seeds
    choose_setting
    out=${out:-$repository/runs/$task-$scale-seed$seed}
    check_out
    start
    find_devices
    [ $((streams % processes)) = 0 ] ||
        fail "$streams streams cannot be divided among $processes GPUs; use fewer (CUDA_VISIBLE_DEVICES)"
    data=$out/data
    dictionaries=()
    prepare_data "$task --seed $seed ${sizes[*]}"
    dictionaries=(--srcdict "$data/dict.input.txt" --tgtdict "$data/dict.label.txt")
    final_sizes=("${sizes[@]}")
    for stage in $curriculum; do
        stages+=("$out/$graded-$stage")
        data=$out/$graded-$stage/data sizes=("${final_sizes[@]}" "--$graded" "$stage")
        [ $printing = yes ] || mkdir -p "$out/$graded-$stage"
        prepare_data "$task --seed $seed ${sizes[*]}"
    done
    data=$out/data sizes=("${final_sizes[@]}")
    for model in $models; do train_and_evaluate "$model"; done
    collect_results "$out"
    draw_curves "$out" accuracy ${stages[@]+"${stages[@]}"}
    [ -n "${FB_FAIRSEQ_SWEEP:-}" ] || compare "$out"
}

# choose_setting: set the options of the data, the models and their training; the command line overrides them.
choose_setting() {
    updates=10000 span=100
    if [ $scale = small ]; then
        # All models have the same number of layers and the same width. The LSTM has no feed-forward sublayers; the
        # Feedback Transformer shares its projections.
        depth=2 shape=(--decoder-embed-dim 64)
        attention=(--decoder-ffn-embed-dim 256 --decoder-attention-heads 4 --decoder-normalize-before)
        training=(--tokens-per-sample 32 --lr 0.002 --clip-norm 1.0) lstm=(--lr 0.005) feedback=()
        streams=64 updates=1000 span=8
    else
        # v3 Table 9, which gives no number of updates.
        depth=4 shape=(--decoder-embed-dim 256)
        attention=(--decoder-ffn-embed-dim 1024 --decoder-attention-heads 4 --decoder-normalize-before
            --attention-dropout 0.2 --activation-dropout 0.2)
        feedback=(--memory-projections per-layer) # 3.2M parameters each
        training=(--tokens-per-sample 64 --lr 0.0001 --clip-norm 0.1 --lr-scheduler fixed --warmup-updates 1000)
        streams=512 lstm=(--dropout 0.2)
    fi
    ${scale}_setting
    updates=${own_updates:-$updates} span=${own_span:-$span}
    if [ $scale = small ]; then
        # The learning rate stays constant while accuracy may be on a plateau, then falls to a tenth.
        local warmup=$((updates / 20)) decay=$(((updates + 4) / 5))
        training+=(--lr-scheduler tri_stage --warmup-steps $warmup --hold-steps $((updates - warmup - decay))
            --decay-steps $decay --final-lr-scale 0.1)
        # Feedback Transformers with long spans learn late, unless the spans start short and grow.
        if [ "$span" -gt $first_span ] && [ $fixed = no ]; then
            attention+=(--adaptive-span --adaptive-span-init "$(awk "BEGIN {print $first_span / $span}")"
                --adaptive-span-ramp $first_span)
        fi
    fi
    local option value
    for option in $data_sizes $data_words; do
        value=${option//-/_}
        [ -z "${!value}" ] || sizes+=("--$option" "${!value}")
    done
    sizes+=($switches)
    depth=${layers:-$depth}
    shape+=(--decoder-layers "$depth")
}

# prepare INPUT DESTDIR: generate and binarise the data; there is no input.
prepare() {
    run python -m fb_fairseq synthetic-tasks "$task" --seed "$seed" "${sizes[@]}" --out "$2"
    preprocess "$2" train valid test "$2" --source-lang input --target-lang label \
        ${dictionaries[@]+"${dictionaries[@]}"}
}

# train_and_evaluate MODEL: train one model, evaluate its best checkpoint and write the results to OUT/<model>.json.
# Each stage of a curriculum starts from the best checkpoint of the one before it.
train_and_evaluate() {
    local run=$out/$1 arch=$1 options=() every=$((updates / 5 + 1)) composition folder start=()
    composition=$(composition_options "$1")
    case $1 in
        *lstm*) options=("${lstm[@]}") ;;
        *) options=("${attention[@]}" --attention-span "$span") ;;
    esac
    if [ "$1" = feedback_transformer_lm ]; then options+=(${feedback[@]+"${feedback[@]}"}); fi
    if [ -n "$composition" ]; then arch=feedback_transformer_lm options+=($composition); fi
    options=(--task streaming_lm --labels --criterion lm_loss --arch "$arch" "${shape[@]}" --optimizer adam
        "${training[@]}" ${options[@]+"${options[@]}"} --batch-size $((streams / processes))
        --best-checkpoint-metric accuracy --maximize-best-checkpoint-metric --keep-interval-updates 1)
    for folder in ${stages[@]+"${stages[@]}"}; do
        comment "train $1, $graded ${folder##*-}"
        run_training "$folder/$1" "$updates" "$every" "$folder/data" "${options[@]}" ${start[@]+"${start[@]}"}
        start=(--finetune-from-model "$folder/$1/checkpoint_best.pt")
    done
    comment "train $1"
    run_training "$run" "$updates" "$every" "$data" "${options[@]}" ${start[@]+"${start[@]}"}
    comment "evaluate $1"
    logged evaluation "$run.eval" python -m fb_fairseq evaluate-labels "$data" --path "$run/checkpoint_best.pt" \
        $cpu --out "$run.accuracy"
    [ $printing = no ] || return 0
    python - "$run" "$task" "$scale" "${sizes[*]}${curriculum:+ --curriculum ${curriculum// /,}}" \
        "$(parameters_of "$run")" "$updates" "$span" "$seed" "$depth" ${stages[@]+"${stages[@]}"} <<'PY'
import json, os, re, sys
from fb_fairseq.reproduction.compare.runs import training_cost
run, task, scale, sizes = sys.argv[1:5]
parameters, updates, span, seed, layers = map(int, sys.argv[5:10])
data = dict(re.findall(r"(--\S+) ?((?!--)\S*)", sizes))  # the last one counts where an option is given twice
result = {"recipe": task, "small": scale == "small", "model": os.path.basename(run)}
result["data"] = " ".join(f"{option} {value}".strip() for option, value in data.items())
result.update(json.load(open(f"{run}.accuracy")))
log = open(f"{run}.log", encoding="utf-8", errors="replace").read()
result["dev_accuracy"] = max(map(float, re.findall(r'"valid_accuracy": "([\d.]+)"', log)), default=None)
result.update(parameters=parameters, layers=layers, updates=updates, seed=seed, **training_cost(run))
for folder in sys.argv[10:]:  # of the curriculum's first stages
    cost = training_cost(os.path.join(folder, os.path.basename(run)))
    for name in ("seconds", "num_updates"):
        result[name] += cost[name]
if "lstm" not in os.path.basename(run):
    result["attention_span"] = span
json.dump(result, open(f"{run}.json", "w"))
accuracies = f"{result['accuracy']:.2f} % of the labels, {result['sequence_accuracy']:.2f} % of the sequences"
print(f"== {os.path.basename(run)}: {accuracies} are right")
PY
}
