# Sourced by examples/language_modeling/*/run.sh. A corpus's script defines the following and calls run_recipe "$@":
#
#   corpus        name of the output folder: runs/$corpus, or runs/$corpus-small
#   full_models   models of the papers' setting (default of --models)
#   small_models, small_layers
#                 models and numbers of layers of --small (defaults of --models and --layers)
#   metric        metric of the learning curves: bpb, loss or ppl
#   prompt        text that the step generate continues
#   prepare DATA DESTDIR
#                 function: check the user's copy of the corpus and binarise it; its other files go to DESTDIR, too
#   full_setting ARCH, small_setting ARCH
#                 functions: set updates, finetune_updates (0: no fine-tuning), every (updates between validations),
#                 streams (total number), steps (tokens of a stream per update), valid_streams, lr, and the arrays
#                 optimisation (options of training and fine-tuning) and warmup (options of training only)
#   shape LAYERS  function, --small only: add the model's size to the array model_options, and set ffn, the feed-forward
#                 width. All-attention models get ffn persistent vectors, which have as many parameters, unless describe
#                 sets another number.
#   describe MODEL
#                 function, if some models are not names of architectures: set model_options, starting with --arch ARCH
#
# The steps are prepare, train, finetune, evaluate and generate. Run a recipe again to resume; finished steps are skipped.

. "$(dirname -- "${BASH_SOURCE[0]}")/../steps.sh"

usage="give DATA or --small DATA, and --out DIR --steps \"prepare train finetune evaluate generate\"\
 --models \"NAME …\" --layers \"N …\" (with --small) --updates N --finetune-updates N --update-freq N --seed N\
 --nodes N --node-rank N --rendezvous HOST:PORT --print, -- options of fairseq-train"

small_models="feedback_transformer_lm relative_transformer_lm all_attention_lm"
small_layers=2

# describe MODEL: by default, a model is an architecture.
describe() {
    check_architecture "$1"
    model_options=(--arch "$1")
}

# run_recipe ARGUMENTS…: run the steps that the command line names, for every model and number of layers.
run_recipe() {
    local layer model run
    parse "$@"
    start
    data=$out/data
    if asked prepare; then prepare_data "$corpus$([ $small = no ] || echo " --small")"; fi
    [ "$node_rank" != 0 ] || [ $printing = yes ] || [ -s "$data/dict.txt" ] ||
        fail "$data: no prepared data; run step prepare first"
    find_devices
    for layer in $layers; do
        for model in $models; do
            describe "$model"
            choose_setting "${model_options[1]}"
            run=$out/$model
            if [ $small = yes ]; then
                run=$out/$model-$layer
                shape "$layer"
                # All models have the same number of parameters, but for the 1 + layers memory weights of the Feedback
                # Transformer.
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
    [ "$node_rank" = 0 ] || exit 0
    if asked evaluate; then collect_results "$out"; fi
    draw_curves "$out" $metric
}

# choose_setting ARCH: set the training options of an architecture; the command line overrides them.
choose_setting() {
    optimizer=adam
    if [ $small = yes ]; then small_setting "$1"; else full_setting "$1"; fi
    updates=${own_updates:-$updates} finetune_updates=${own_finetune_updates:-$finetune_updates}
    [ $((streams % (processes * update_freq))) = 0 ] ||
        fail "--update-freq $update_freq: $streams streams cannot be divided among $processes processes x $update_freq"
}

# parse ARGUMENTS…: read the command line and set the defaults.
parse() {
    local model
    small=no input="" out="" layers="" models="" seed=1 update_freq=1 own_updates="" own_finetune_updates=""
    nodes="" node_rank="" rendezvous="" todo="prepare train finetune evaluate generate" extra=()
    parse_options "out steps models node-rank rendezvous" "layers+ updates finetune-updates update-freq seed nodes" "$@"
    check_names --steps "$todo" "prepare train finetune evaluate generate"
    find_input
    if [ $small = yes ]; then
        out=${out:-$repository/runs/$corpus-small} models=${models:-$small_models} layers=${layers:-$small_layers}
    else
        [ -z "$layers" ] || fail "--layers: only with --small"
        out=${out:-$repository/runs/$corpus} models=${models:-$full_models} layers=full
    fi
    for model in $models; do describe "$model"; done # stops at an unknown model
    check_out
    find_nodes
}

# run_steps RUN: run the requested steps for one model.
run_steps() {
    local run=$1 step origin
    for step in $todo; do
        case $step in
            train)
                comment "train ${run##*/}"
                train "$run" "$updates" --lr "$lr" ${warmup[@]+"${warmup[@]}"}
                ;;
            finetune)
                # "The final performances are obtained by finetuning the models with a 10x smaller learning rate"
                # (v3, §7.6).
                [ "$finetune_updates" != 0 ] || continue
                have "$run/checkpoint_best.pt" train
                if [ $printing = yes ]; then
                    comment "finetune ${run##*/}"
                    printed_files+="|$run-finetuned/checkpoint_best.pt|"
                    finetune "$run"
                    continue
                fi
                origin=$(cksum <"$run/checkpoint_best.pt")
                if [ "$(cat "$run-finetuned.from" 2>/dev/null || true)" != "$origin" ]; then
                    renewed=$run-finetuned # any earlier fine-tuning started from another checkpoint
                    if [ "$node_rank" = 0 ]; then
                        rm -rf "$run-finetuned" "$run-finetuned".*
                        echo "$origin" >"$run-finetuned.from"
                    fi
                fi
                finetune "$run"
                ;;
            evaluate)
                evaluate "$run"
                if there "$run-finetuned/checkpoint_best.pt"; then evaluate "$run-finetuned"; fi
                ;;
            generate) generate "$run" ;;
        esac
    done
}

# finetune RUN: continue from the best checkpoint at a tenth of the learning rate, in RUN-finetuned/.
finetune() {
    local origin=$1/checkpoint_best.pt from=--finetune-from-model target=$finetune_updates
    if [ "$optimizer" = clipped_adagrad ]; then
        # Keep Adagrad's sums of squared gradients: without them its first steps would be as large as at the start of
        # training.
        from=--continue-once
        target=$((target + $(updates_of "$origin")))
        comment "(--max-update: $finetune_updates more than the best checkpoint has, here $(updates_of "$origin"))"
    fi
    train "$1-finetuned" "$target" $from "$origin" --lr "$(awk "BEGIN {print $lr / 10}")"
}

# updates_of CHECKPOINT: print its number of updates; with --print, that of the whole training.
updates_of() {
    if [ $printing = yes ]; then
        echo "$updates"
        return
    fi
    python - "$1" <<'PY'
import sys
from fb_fairseq.commands.plot.checkpoints import load_checkpoint
print(load_checkpoint(sys.argv[1])["optimizer_history"][-1]["num_updates"])
PY
}

# train RUN UPDATES OPTIONS…: train the model in RUN/.
train() {
    local run=$1 target=$2
    shift 2
    run_training "$run" "$target" "$every" "$data" --task streaming_lm --criterion lm_loss "${model_options[@]}" \
        --tokens-per-sample "$steps" --batch-size $((streams / processes / update_freq)) --update-freq "$update_freq" \
        --valid-streams "$valid_streams" --optimizer $optimizer "${optimisation[@]}" --keep-interval-updates 1 "$@"
}

# evaluate RUN: evaluate the best checkpoint on the test split; the results go to RUN.json.
evaluate() {
    local run=$1
    have "$run/checkpoint_best.pt" train
    comment "evaluate ${run##*/}"
    logged evaluation "$run.eval" fairseq-eval-lm "$data" --user-dir fb_fairseq --task streaming_lm --gen-subset test \
        --valid-streams "$valid_streams" --tokens-per-sample "$steps" --softmax-batch 4096 \
        --path "$run/checkpoint_best.pt" $cpu
    [ $printing = no ] || return 0
    python - "$run" "$(parameters_of "$run")" <<'PY'
import json, os, re, sys
run, parameters = sys.argv[1], int(sys.argv[2])
bits = float(re.findall(r"Loss \(base 2\): ([\d.]+),", open(f"{run}.eval").read())[-1])
seconds = int(open(f"{run}.seconds").read()) if os.path.exists(f"{run}.seconds") else None
perplexity = round(2**bits, 3)
result = {"test_bits_per_token": bits, "test_perplexity": perplexity, "parameters": parameters, "seconds": seconds}
json.dump(result, open(f"{run}.json", "w"))
print(f"== {os.path.basename(run)}: {bits} bits per token on the test split; {parameters} parameters, {seconds} s")
PY
}

# generate RUN: sample a continuation of $prompt from the fine-tuned model, or from the model itself.
generate() {
    local checkpoint=$1-finetuned/checkpoint_best.pt
    local command=(fairseq-interactive "$data" --user-dir fb_fairseq --task streaming_lm --sampling --sampling-topk 10
        --beam 1 --max-len-b 200 --seed "$seed" $cpu)
    there "$checkpoint" || checkpoint=$1/checkpoint_best.pt
    have "$checkpoint" train
    if [ $printing = yes ]; then
        comment "generate with ${1##*/}"
        quote "$prompt"
        show "<<<$quoted" "${command[@]}" --path "$checkpoint"
        return
    fi
    logged generation "$1.sample" "${command[@]}" --path "$checkpoint" <<<"$prompt"
    echo "== $(basename "$1") continues: $prompt"
    grep '^D-0' "$1.sample" | cut -f 3
}
