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
#                 streams (total number), steps (tokens of a stream per update), valid_streams (in validation),
#                 test_streams (in the evaluation), lr, and the arrays optimisation (options of training and
#                 fine-tuning), warmup and bptt_warmup (options of training only)
#   adjust_setting
#                 function, if the setting depends on $model: change these variables
#   shape LAYERS  function, --small only: add the model's size to the array model_options, and set ffn, the feed-forward
#                 width, vectors, the number of persistent vectors that have as many parameters (if it is not ffn;
#                 describe can set another), and activation_dropout, if feed-forward sublayers have it
#   full_shape LAYERS
#                 function, if --layers is for the papers' setting, too: the same, at a constant number of parameters
#   describe MODEL
#                 function, if some models are not names of architectures: set model_options, starting with --arch ARCH,
#                 and if needed variant (options that come after those of the shape), evaluation (options of the
#                 evaluation), origin (the Transformer whose parameters this model is initialised with) and start (the
#                 model whose fine-tuned checkpoint this one continues)
#
# The steps are prepare, train, finetune, evaluate and generate. Run a recipe again to resume; finished steps are skipped.

. "$(dirname -- "${BASH_SOURCE[0]}")/../steps.sh"

usage="give DATA or --small DATA, and --out DIR --steps \"prepare train finetune evaluate generate\"\
 --models \"NAME …\" --layers \"N …\" --seeds \"N …\" --jobs N --updates N --finetune-updates N --lr LR\
 --update-freq N --valid-streams N --test-streams N --nodes N --node-rank N --rendezvous HOST:PORT --print,\
 -- options of fairseq-train"

small_models="feedback_transformer_lm relative_transformer_lm all_attention_lm"
small_layers=2 vectors="" activation_dropout=""

# describe MODEL: by default, a model is an architecture, or initialised.
describe() {
    if [ "$1" = initialised ]; then
        describe_initialised
    else
        check_architecture "$1"
        model_options=(--arch "$1")
    fi
}

# describe_afresh MODEL: describe it, with nothing left of another model.
describe_afresh() {
    origin="" start="" variant=() evaluation=()
    describe "$1"
}

# describe_initialised: the Feedback Transformer of full_models or small_models, initialised with the parameters of the
# Transformer of the same size (v1 §3.2).
describe_initialised() {
    local feedback=${full_models%% *}
    [ $small = no ] || feedback=feedback_transformer_lm
    model_options=(--arch "$feedback") origin=relative_${feedback#feedback_}
}

# run_recipe ARGUMENTS…: run the steps that the command line names, for every seed, number of layers and model.
run_recipe() {
    local layer model seed run suffix
    parse "$@"
    start
    data=$out/data
    if asked prepare; then prepare_data "$corpus$([ $small = no ] || echo " --small")"; fi
    [ "$node_rank" != 0 ] || [ $printing = yes ] || [ -s "$data/dict.txt" ] ||
        fail "$data: no prepared data; run step prepare first"
    find_devices
    prepare_jobs
    for seed in $seeds; do
        for layer in $layers; do
            for model in $models; do
                set_up
                [ -z "$origin$start" ] || wait_for_jobs # among them the one whose parameters this model starts from
                start_job "$model$suffix" run_steps "$run"
            done
        done
    done
    wait_for_jobs
    [ "$node_rank" = 0 ] || exit 0
    draw_curves "$out" $metric
    if asked evaluate; then
        collect_results "$out"
        case $layers in *" "*) draw_against_layers "$out" "test_$result" ;; esac
        compare "$out"
    fi
}

# set_suffix: set $suffix, which ends the names of runs with $layer and $seed. Those of seed 1 do not have it.
set_suffix() {
    suffix=""
    [ "$layer" = full ] || suffix=-$layer
    [ "$seed" = 1 ] || suffix+=-seed$seed
}

# set_up: set everything that depends on $model, $layer and $seed.
set_up() {
    set_suffix
    run=$out/$model$suffix
    describe_afresh "$model"
    choose_setting "${model_options[1]}"
    if [ $small = yes ]; then
        shape "$layer"
        local ffn_options=(--decoder-ffn-embed-dim "$ffn")
        [ -z "$activation_dropout" ] || ffn_options+=(--activation-dropout "$activation_dropout")
        # All models have the same number of parameters, but for the 1 + layers memory weights of the Feedback
        # Transformer.
        case ${model_options[1]} in
            all_attention_lm) model_options=(--persistent-memory-size "${vectors:-$ffn}" "${model_options[@]}") ;;
            feedback_transformer_lm) model_options+=("${ffn_options[@]}" --memory-projections per-layer) ;;
            *) model_options+=("${ffn_options[@]}") ;;
        esac
    elif [ "$layer" != full ]; then
        full_shape "$layer"
    fi
    model_options+=(${variant[@]+"${variant[@]}"})
}

# choose_setting ARCH: set the training options of an architecture; the command line overrides them.
choose_setting() {
    optimizer=adam bptt_warmup=()
    if [ $small = yes ]; then small_setting "$1"; else full_setting "$1"; fi
    updates=${own_updates:-$updates} finetune_updates=${own_finetune_updates:-$finetune_updates} lr=${own_lr:-$lr}
    if declare -F adjust_setting >/dev/null; then adjust_setting; fi
    valid_streams=${own_valid_streams:-$valid_streams} test_streams=${own_test_streams:-$test_streams}
    [ $((streams % (processes * update_freq))) = 0 ] ||
        fail "--update-freq $update_freq: $streams streams cannot be divided among $processes processes x $update_freq"
}

# parse ARGUMENTS…: read the command line and set the defaults.
parse() {
    local model layer
    small=no input="" out="" layers="" models="" seed="" seeds="" update_freq=1 own_updates="" own_finetune_updates=""
    own_valid_streams="" own_test_streams="" own_lr="" nodes="" node_rank="" rendezvous="" extra=() jobs=1
    todo="prepare train finetune evaluate generate"
    parse_options "out steps models lr node-rank rendezvous" "layers+ seeds+ seed updates finetune-updates update-freq\
 valid-streams test-streams nodes jobs" "$@"
    check_names --steps "$todo" "prepare train finetune evaluate generate"
    case " ${extra[*]-} " in
        *" --lr "* | *" --lr="*) fail "--lr: give it before the --; fine-tuning then has a tenth of it" ;;
    esac
    find_input
    if [ $small = yes ]; then
        out=${out:-$repository/runs/$corpus-small} models=${models:-$small_models} layers=${layers:-$small_layers}
    else
        [ -z "$layers" ] || declare -F full_shape >/dev/null || fail "--layers: only with --small"
        out=${out:-$repository/runs/$corpus} models=${models:-$full_models} layers=${layers:-full}
    fi
    seeds=$(unique ${seeds:-${seed:-1}}) layers=$(unique $layers)
    for model in $models; do # stops at an unknown model, or a number of layers that it cannot have
        for layer in $layers; do
            describe_afresh "$model"
            if [ $small = no ] && [ "$layer" != full ]; then full_shape "$layer"; fi
        done
    done
    check_out
    find_nodes
}

# run_steps RUN: run the requested steps for one model.
run_steps() {
    local run=$1 step source
    for step in $todo; do
        case $step in
            train)
                comment "train ${run##*/}"
                if [ -n "$origin" ]; then
                    have "$out/$origin$suffix/checkpoint_best.pt" "train of the model $origin"
                    model_options+=(--init-from-transformer "$out/$origin$suffix/checkpoint_best.pt")
                fi
                if [ -n "$start" ]; then
                    have "$out/$start$suffix-finetuned/checkpoint_best.pt" "finetune of the model $start"
                    model_options+=(--finetune-from-model "$out/$start$suffix-finetuned/checkpoint_best.pt")
                fi
                train "$run" "$updates" --lr "$lr" ${warmup[@]+"${warmup[@]}"} ${bptt_warmup[@]+"${bptt_warmup[@]}"}
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
                source=$(cksum <"$run/checkpoint_best.pt")
                if [ "$(cat "$run-finetuned.from" 2>/dev/null || true)" != "$source" ]; then
                    renewed=$run-finetuned # any earlier fine-tuning started from another checkpoint
                    if [ "$node_rank" = 0 ]; then
                        rm -rf "$run-finetuned" "$run-finetuned".*
                        echo "$source" >"$run-finetuned.from"
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

# evaluate RUN: evaluate the best checkpoint on the validation and test splits; the results go to RUN.json. Streams start
# with an empty memory: few of them leave more context to each token.
evaluate() {
    local run=$1 split log
    have "$run/checkpoint_best.pt" train
    for split in valid test; do
        comment "evaluate ${run##*/} on the $split split"
        log=$run.eval
        [ $split = test ] || log=$run.valid.eval
        logged evaluation "$log" fairseq-eval-lm "$data" --user-dir fb_fairseq --task streaming_lm \
            ${evaluation[@]+"${evaluation[@]}"} --gen-subset $split --valid-streams "$test_streams" \
            --tokens-per-sample "$steps" --softmax-batch 4096 --path "$run/checkpoint_best.pt" $cpu
    done
    [ $printing = no ] || return 0
    python "$repository/examples/language_modeling/result.py" "$run" --recipe "$corpus" --small "$small" \
        --model "$model" --layers "$layer" --seed "$seed" --streams "$test_streams" \
        --parameters "$(parameters_of "$run")" || fail "$run: the evaluation left no results; see the error above"
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
