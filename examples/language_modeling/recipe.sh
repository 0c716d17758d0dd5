# Sourced by examples/language_modeling/*/run.sh, each of which sets what is its corpus's own and calls run_recipe "$@":
#
#   corpus        runs go to runs/$corpus, or runs/$corpus-small
#   full_models   what is trained in the papers' setting, unless --models says otherwise
#   metric        what the curves show: bpb, loss or ppl
#   prompt        generation goes on from it
#   prepare DATA DESTDIR
#                 function: check the user's copy and binarise it
#   full_setting ARCH, small_setting ARCH
#                 functions: set updates, finetune_updates (0: none), every (updates between validations), streams (of an
#                 update), steps (of a block), valid_streams, lr, and the arrays optimisation (options of both trainings)
#                 and warmup (of the first training only)
#   small_models, small_layers
#                 what --small trains, unless --models and --layers say otherwise
#   shape LAYERS  function, --small only: add to the array model_options, and set ffn, the feed-forward width; all-attention
#                 gets as many persistent vectors (unless describe says otherwise), which are as many parameters
#   describe MODEL
#                 function, where models are not architectures: set model_options, first of all --arch ARCH
#
# The steps are prepare, train, finetune, evaluate, generate; each takes up where an earlier run of the recipe stopped.

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$repository/examples/environment.sh"
. "$repository/examples/steps.sh"

usage="give DATA or --small DATA, and --out DIR --steps \"prepare train finetune evaluate generate\" --models \"NAME …\"\
 --layers \"N …\" (with --small) --updates N --finetune-updates N --update-freq N --seed N, -- options of fairseq-train"

small_models="feedback_transformer_lm relative_transformer_lm all_attention_lm"
small_layers=2

describe() {
    model_options=(--arch "$1")
}

run_recipe() {
    parse "$@"
    input=$(absolute "$input")
    mkdir -p "$out"
    out=$(cd "$out" && pwd) data=$out/data
    cd "$repository"
    make_environment
    if asked prepare; then renew_data; fi
    [ -s "$data/dict.txt" ] || fail "$data: no prepared data; run the step prepare first"
    local layer model run
    # One process a GPU, or one on the CPU.
    cpu="" processes=$(python -c 'import torch; print(torch.cuda.device_count())')
    if [ "$processes" = 0 ]; then cpu=--cpu processes=1; fi
    for layer in $layers; do
        for model in $models; do
            describe "$model"
            choose_setting "${model_options[1]}"
            run=$out/$model
            if [ $small = yes ]; then
                run=$out/$model-$layer
                shape "$layer"
                # Equal parameters: the Feedback Transformer has 1 + layers scalars more.
                case ${model_options[1]} in
                    all_attention_lm) model_options=(--persistent-memory-size "$ffn" "${model_options[@]}") ;;
                    feedback_transformer_lm)
                        model_options+=(--decoder-ffn-embed-dim "$ffn" --memory-projections per-layer)
                        ;;
                    *) model_options+=(--decoder-ffn-embed-dim "$ffn") ;;
                esac
            fi
            run_steps "$run"
        done
    done
    if asked evaluate; then collect_results "$out"; fi
    draw_curves "$out" $metric
}

# choose_setting ARCH: the setting of its training, and what the command line says of it.
choose_setting() {
    optimizer=adam
    if [ $small = yes ]; then small_setting "$1"; else full_setting "$1"; fi
    updates=${own_updates:-$updates} finetune_updates=${own_finetune_updates:-$finetune_updates}
    [ $((streams % (processes * update_freq))) = 0 ] ||
        fail "--update-freq $update_freq: $streams streams cannot be shared by $processes processes x $update_freq"
}

parse() {
    local step
    small=no input="" out="" layers="" models="" seed=1 update_freq=1 own_updates="" own_finetune_updates=""
    todo="prepare train finetune evaluate generate" extra=()
    parse_options "out steps models" "layers updates finetune-updates update-freq seed" "$@"
    for step in $todo; do
        case $step in prepare | train | finetune | evaluate | generate) ;; *) fail "--steps $step: unknown; $usage" ;; esac
    done
    if asked prepare && [ -z "$input" ]; then fail "DATA is missing; $usage"; fi
    if [ $small = yes ]; then
        out=${out:-$repository/runs/$corpus-small} models=${models:-$small_models} layers=${layers:-$small_layers}
    else
        [ -z "$layers" ] || fail "--layers: only with --small"
        out=${out:-$repository/runs/$corpus} models=${models:-$full_models} layers=full
    fi
    local model
    for model in $models; do describe "$model"; done  # stops at one that it does not know
}

# Prepared anew, the data replace what is there, unless models were trained on other data.
renew_data() {
    echo "== prepare"
    rm -rf "$data.tmp"
    prepare "$input" "$data.tmp"
    if [ -e "$data/train.bin" ] && ! cmp -s "$data/train.bin" "$data.tmp/train.bin" && ls "$out"/*/*.pt >/dev/null 2>&1; then
        rm -rf "$data.tmp"
        fail "$out: holds models that were trained on other data; give another --out, or remove it"
    fi
    rm -rf "$data"
    mv "$data.tmp" "$data"
}

# run_steps RUN: what was asked for, of one model.
run_steps() {
    local run=$1 step origin
    for step in $todo; do
        case $step in
            train) train "$run" "$updates" --lr "$lr" ${warmup[@]+"${warmup[@]}"} ;;
            finetune)
                # "The final performances are obtained by finetuning the models with a 10x smaller learning rate"
                # (v3, §7.6).
                [ "$finetune_updates" != 0 ] || continue
                have "$run/checkpoint_best.pt" train
                origin=$(cksum <"$run/checkpoint_best.pt")
                if [ "$(cat "$run-finetuned.from" 2>/dev/null || true)" != "$origin" ]; then
                    rm -rf "$run-finetuned" "$run-finetuned".*  # of another model, or none
                    echo "$origin" >"$run-finetuned.from"
                fi
                finetune "$run"
                ;;
            evaluate)
                evaluate "$run"
                [ ! -e "$run-finetuned/checkpoint_best.pt" ] || evaluate "$run-finetuned"
                ;;
            generate) generate "$run" ;;
        esac
    done
}

# finetune RUN: from its best checkpoint, to RUN-finetuned/.
finetune() {
    local origin=$1/checkpoint_best.pt from=--finetune-from-model target=$finetune_updates
    if [ "$optimizer" = clipped_adagrad ]; then
        # Adagrad's sums are kept: without them its first steps would be as large as at the beginning of the training.
        from=--continue-once
        target=$((target + $(python - "$origin" <<'PY'
import sys
from fb_fairseq.commands.plot.checkpoints import load_checkpoint
print(load_checkpoint(sys.argv[1])["optimizer_history"][-1]["num_updates"])
PY
        )))
    fi
    train "$1-finetuned" "$target" $from "$origin" --lr "$(python -c "print($lr / 10)")"
}

# train RUN UPDATES OPTIONS…: to RUN/, with its log in RUN.log.
train() {
    local run=$1 target=$2
    shift 2
    run_training "$run" "$target" "$data" --user-dir fb_fairseq --task streaming_lm --criterion lm_loss \
        "${model_options[@]}" --tokens-per-sample "$steps" --batch-size $((streams / processes / update_freq)) \
        --update-freq "$update_freq" --valid-streams "$valid_streams" --optimizer $optimizer "${optimisation[@]}" \
        --validate-interval-updates "$every" --save-interval-updates "$every" --keep-interval-updates 1 \
        --validate-interval 1000000 --save-interval 1000000 --no-epoch-checkpoints --seed "$seed" $cpu \
        --log-format json --log-interval 25 "$@" ${extra[@]+"${extra[@]}"}
}

# evaluate RUN: the test split with RUN's best checkpoint, to RUN.json.
evaluate() {
    local run=$1
    have "$run/checkpoint_best.pt" train
    fairseq-eval-lm "$data" --user-dir fb_fairseq --task streaming_lm --gen-subset test --valid-streams "$valid_streams" \
        --tokens-per-sample "$steps" --softmax-batch 4096 --path "$run/checkpoint_best.pt" $cpu >"$run.eval" 2>&1 ||
        fail "evaluation stopped: $(tail -n 1 "$run.eval"); $run.eval says more"
    python - "$run" <<'PY'
import json, os, re, sys
run = sys.argv[1]
bits = float(re.findall(r"Loss \(base 2\): ([\d.]+),", open(f"{run}.eval").read())[-1])
parameters = int(re.findall(r"shared model params: ([\d,]+)", open(f"{run}.log").read())[-1].replace(",", ""))
seconds = int(open(f"{run}.seconds").read()) if os.path.exists(f"{run}.seconds") else None
result = {"test_bits_per_token": bits, "test_perplexity": round(2**bits, 3), "parameters": parameters, "seconds": seconds}
json.dump(result, open(f"{run}.json", "w"))
print(f"== {os.path.basename(run)}: {bits} bits per token on the test split; {parameters} parameters, {seconds} s")
PY
}

# generate RUN: go on from $prompt, with the last checkpoint there is.
generate() {
    local checkpoint=$1-finetuned/checkpoint_best.pt
    [ -e "$checkpoint" ] || checkpoint=$1/checkpoint_best.pt
    have "$checkpoint" train
    printf '%s\n' "$prompt" | fairseq-interactive "$data" --user-dir fb_fairseq --task streaming_lm --sampling \
        --sampling-topk 10 --beam 1 --max-len-b 200 --seed "$seed" $cpu --path "$checkpoint" >"$1.sample" 2>&1 ||
        fail "generation stopped: $(tail -n 1 "$1.sample"); $1.sample says more"
    echo "== $(basename "$1") goes on from: $prompt"
    grep '^D-0' "$1.sample" | cut -f 3
}

# preprocess TRAIN VALID TEST DESTDIR: fairseq's own, for text in words.
preprocess() {
    mkdir -p "$4"
    fairseq-preprocess --only-source --trainpref "$1" --validpref "$2" --testpref "$3" --destdir "$4" --workers 1 \
        >"$out/preprocess.out" 2>&1 || fail "preprocessing stopped: $(tail -n 1 "$out/preprocess.out"); $out/preprocess.out says more"
}
