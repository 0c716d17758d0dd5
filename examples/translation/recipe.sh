# Sourced by examples/translation/*/run.sh and examples/summarization/*/run.sh. A corpus's script defines the following
# and calls run_recipe "$@":
#
#   corpus        name of the output folder: runs/$corpus, or runs/$corpus-small
#   pair          source and target language, such as "de en"
#   metric        METRIC:KEY that the step tune maximises: a metric of python -m fb_fairseq score, and its key in the
#                 output
#   architectures vanilla and feedback architecture, such as "transformer_iwslt_de_en feedback_decoder_iwslt_de_en"
#   prepare DATA DESTDIR
#                 function: check the user's copy of the corpus and binarise it; its other files go to DESTDIR, too
#   full_setting, small_setting
#                 functions: set updates, tokens (per update), every (updates between validations), averaged (number of
#                 last checkpoints to average; 1: take the best one), lenpens (length penalties to try), lengths
#                 (lengths of outputs to try, LONGEST:SHORTEST in tokens; empty: fairseq's), default_layers,
#                 default_projections, and the arrays training (options of training) and decoding (options of generation)
#   shape LAYERS  function: add the model's size to the array model_options
#   language      optional: language of the target text (default: the target language)
#   task_options  optional: array of options of both training and generation
#
#   describe MODEL
#                 optional function, for models of the corpus (more_models): set the array model_options
#
# Models: transformer (vanilla), feedback (trained from scratch), initialised (a feedback decoder initialised with the
# parameters of the vanilla model, by default with per-layer projections, which all have a counterpart there). The steps
# are prepare, train, average, tune (length penalty and lengths, on the validation set), generate and score (both on the
# test set). Finished steps are not repeated.

. "$(dirname -- "${BASH_SOURCE[0]}")/../steps.sh"

usage="give DATA or --small DATA, and --out DIR --steps \"prepare train average tune generate score\"\
 --models \"transformer feedback initialised\" --layers \"N …\" --seeds \"N …\" --jobs N --projections per-layer|shared\
 --updates N --update-freq N --nodes N --node-rank N --rendezvous HOST:PORT --print, -- options of fairseq-train"
more_models="" # of the corpus

# run_recipe ARGUMENTS…: run the steps that the command line names, for every seed, number of layers and model.
run_recipe() {
    local layer model seed suffix
    parse "$@"
    start
    data=$out/data
    if asked prepare; then prepare_data "$corpus$([ $small = no ] || echo " --small")"; fi
    [ "$node_rank" != 0 ] || [ $printing = yes ] || [ -s "$data/dict.${pair#* }.txt" ] ||
        fail "$data: no prepared data; run step prepare first"
    find_devices
    prepare_jobs
    for seed in $seeds; do
        for layer in $layers; do
            for model in $models; do
                suffix=-$layer
                [ "$seed" = 1 ] || suffix+=-seed$seed # the folder of seed 1 has no seed in its name
                [ $model != initialised ] || wait_for_jobs # among them the transformer whose parameters it starts from
                start_job "$model$suffix" run_steps "$out/$model$suffix"
            done
        done
    done
    wait_for_jobs
    [ "$node_rank" = 0 ] || exit 0
    draw_curves "$out" nll_loss
    if asked score; then
        collect_results "$out"
        case $layers in *" "*) draw_against_layers "$out" "${metric#*:}" dev_nll decoded_tokens_per_second ;; esac
        compare "$out"
    fi
}

# parse ARGUMENTS…: read the command line and set the defaults.
parse() {
    small=no input="" out="" layers="" models="transformer feedback initialised" projections="" seed="" seeds=""
    update_freq=1 own_updates="" nodes="" node_rank="" rendezvous="" extra=() jobs=1 lengths="" default_projections=per-layer
    todo="prepare train average tune generate score"
    parse_options "out steps models projections node-rank rendezvous" "layers+ seeds+ seed updates update-freq nodes jobs" "$@"
    check_names --steps "$todo" "prepare train average tune generate score"
    check_names --models "$models" "transformer feedback initialised${more_models:+ $more_models}"
    [ -z "$projections" ] || check_names --projections "$projections" "per-layer shared"
    find_input
    if [ $small = yes ]; then small_setting; else full_setting; fi
    out=${out:-$repository/runs/$corpus$([ $small = no ] || echo -small)}
    language=${language:-${pair#* }} task_options=(${task_options[@]+"${task_options[@]}"})
    layers=$(unique ${layers:-$default_layers}) seeds=$(unique ${seeds:-${seed:-1}}) updates=${own_updates:-$updates}
    for model in $models; do # stops at a number of layers that a model cannot have
        for layer in $layers; do
            case " $more_models " in *" $model "*) describe "$model" ;; esac
        done
    done
    check_out
    find_nodes
}

# run_steps RUN: run the requested steps for $model with $layer decoder layers and $seed.
run_steps() {
    local run=$1 step vanilla=$out/transformer$suffix/checkpoint_best.pt own_projections="" length_options
    model_options=()
    shape "$layer"
    case $model in
        transformer) model_options+=(--arch "${architectures% *}") ;;
        feedback) own_projections=${projections:-$default_projections} ;;
        initialised) own_projections=${projections:-per-layer} ;;
        *) describe "$model" ;;
    esac
    [ -z "$own_projections" ] ||
        model_options+=(--arch "${architectures#* }" --memory-projections "$own_projections")
    for step in $todo; do
        case $step in
            train)
                if [ $model = initialised ]; then
                    have "$vanilla" "train of the model transformer"
                    model_options+=(--init-from-transformer "$vanilla")
                fi
                train "$run"
                ;;
            average) average "$run" ;;
            tune) tune "$run" ;;
            generate) generate_test "$run" ;;
            score) score "$run" ;;
        esac
    done
}

# train RUN: train the model in RUN/.
train() {
    comment "train ${1##*/}"
    run_training "$1" "$updates" "$every" "$data" --task translation --source-lang "${pair% *}" \
        --target-lang "${pair#* }" ${task_options[@]+"${task_options[@]}"} "${model_options[@]}" "${training[@]}" \
        --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --optimizer adam --adam-betas "(0.9, 0.98)" \
        --max-tokens $((tokens / processes / update_freq)) --update-freq "$update_freq" \
        --keep-interval-updates "$averaged" --num-workers 0
}

# average RUN: write the average of the last checkpoints, or a copy of the best one, to RUN.pt.
average() {
    have "$1/checkpoint_best.pt" train
    [ $printing = yes ] || [ ! "$1.pt" -nt "$1.done" ] || return 0
    comment "average checkpoints of ${1##*/}"
    if [ $printing = yes ] && [ "$averaged" = 1 ]; then
        show "" cp "$1/checkpoint_best.pt" "$1.pt"
    elif [ "$averaged" = 1 ]; then
        cp "$1/checkpoint_best.pt" "$1.pt.tmp"
        mv "$1.pt.tmp" "$1.pt"
    else
        run python -m fb_fairseq average-checkpoints --inputs "$1" --num-update-checkpoints "$averaged" --output "$1.pt"
    fi
}

# generate RUN SUBSET OUT OPTIONS…: run fairseq-generate; OUT appears only when all sentences are done.
generate() {
    have "$1.pt" average
    filtered generation "$3.err" "" "$3" fairseq-generate "$data" --user-dir fb_fairseq --task translation \
        --source-lang "${pair% *}" --target-lang "${pair#* }" ${task_options[@]+"${task_options[@]}"} \
        --gen-subset "$2" --path "$1.pt" --remove-bpe --max-tokens 4000 --required-batch-size-multiple 1 \
        --num-workers 0 $cpu "${decoding[@]}" "${@:4}"
}

# set_length_options LENPEN LENGTHS: set the array length_options to the options of generation for a length penalty and
# LONGEST:SHORTEST, which may be empty.
set_length_options() {
    length_options=(--lenpen "$1")
    [ -z "$2" ] || length_options+=(--max-len-b "${2%:*}" --min-len "${2#*:}")
}

# tune RUN: find the length penalty with the best $metric on the validation set, and then the best lengths; write the
# options of generation to RUN.tuned, one per line, and the metric's value to RUN.dev.
tune() {
    local best="" chosen=1.0 first=${lengths%% *} kept tried length_options
    have "$1.pt" average
    [ $printing = yes ] || [ ! "$1.tuned" -nt "$1.pt" ] || return 0
    kept=$first
    for tried in $lenpens; do
        try "$1" "$tried" "$first" && chosen=$tried
    done
    for tried in ${lengths#"$first"}; do
        try "$1" "$chosen" "$tried" && kept=$tried
    done
    [ $printing = no ] || return 0
    set_length_options "$chosen" "$kept"
    printf '%s\n' "$best" >"$1.dev"
    printf '%s\n' "${length_options[@]}" >"$1.tuned"
}

# try RUN LENPEN LENGTHS: translate the validation set. Succeeds, and sets $best, if this is better than $best.
try() {
    local value
    set_length_options "$2" "$3"
    comment "tune ${1##*/}: ${length_options[*]}"
    generate "$1" valid "$1.valid" "${length_options[@]}"
    if [ $printing = yes ]; then
        show "" python -m fb_fairseq score --gen "$1.valid" --language "$language" --metrics ${metric%%:*}
        return 1
    fi
    value=$(python -m fb_fairseq score --gen "$1.valid" --language "$language" --metrics ${metric%%:*} |
        python -c "import json, sys; print(json.load(sys.stdin)['${metric#*:}'])") || fail "scoring failed"
    echo "== $(basename "$1"): ${metric#*:} $value on the validation set with ${length_options[*]}"
    [ -z "$best" ] || python -c "import sys; sys.exit(not $value > $best)" || return 1
    best=$value
}

# generate_test RUN: translate the test set with the tuned options to RUN.test.
generate_test() {
    have "$1.pt" average
    if [ $printing = yes ]; then
        comment "generate with ${1##*/} (length options: the best ones of tune)"
        set_length_options "$(case $lenpens in *" "*) echo 1.0 ;; *) echo "$lenpens" ;; esac)" "${lengths%% *}"
        generate "$1" test "$1.test" "${length_options[@]}"
        return
    fi
    if [ "$1.test" -nt "$1.pt" ] && [ ! "$1.tuned" -nt "$1.test" ]; then return 0; fi
    set_length_options 1.0 "${lengths%% *}"
    if [ -e "$1.tuned" ]; then length_options=($(cat "$1.tuned")); fi
    generate "$1" test "$1.test" "${length_options[@]}"
}

# score RUN: write the scores on the test set to RUN.json.
score() {
    have "$1.test" generate
    local raw=()
    if there "$data/test.raw.${pair#* }"; then raw=(--raw-ref "$data/test.raw.${pair#* }"); fi
    comment "score ${1##*/}"
    if [ $printing = yes ]; then
        show "" python -m fb_fairseq score --gen "$1.test" --language "$language" ${raw[@]+"${raw[@]}"}
        return
    fi
    python -m fb_fairseq score --gen "$1.test" --language "$language" ${raw[@]+"${raw[@]}"} >"$1.score" ||
        fail "scoring failed; see the error above"
    python "$repository/examples/translation/result.py" "$1" --recipe "$corpus" --small "$small" --model "$model" \
        --layers "$layer" --seed "$seed" --projections "$own_projections" --parameters "$(parameters_of "$1")" ||
        fail "$1: its results cannot be read; see the error above"
}

# tokenise FILE LANGUAGE OUT: split text into tokens with Moses' rules.
tokenise() {
    filtered tokenising "$out/tokenise.err" "$1" "$3" sacremoses -q -l "$2" tokenize
}

# apply_bpe MERGES DESTDIR: learn one BPE code from both languages of DESTDIR/train.tok.xx, write the files
# {train,valid,test}.tok.xx in subwords to {train,valid,test}.bpe.xx, and binarise them.
apply_bpe() {
    local language split log=$out/bpe.err
    filtered BPE "$log" "" "$2/train.tok" cat "$2/train.tok.${pair% *}" "$2/train.tok.${pair#* }"
    filtered BPE "$log" "$2/train.tok" "$2/codes" subword-nmt learn-bpe -s "$1"
    run rm "$2/train.tok"
    for language in $pair; do
        for split in train valid test; do
            filtered BPE "$log" "$2/$split.tok.$language" "$2/$split.bpe.$language" subword-nmt apply-bpe -c "$2/codes"
        done
    done
    binarise "$2" train.bpe valid.bpe test.bpe "$2" --joined-dictionary
}

# binarise FOLDER TRAIN VALID TEST DESTDIR [--joined-dictionary]: run fairseq-preprocess on the files TRAIN.xx, VALID.xx,
# TEST.xx in FOLDER.
binarise() {
    preprocess "$@" --source-lang "${pair% *}" --target-lang "${pair#* }"
}

# check_lines FILE NUMBER: stop unless the file has this number of lines, in UTF-8.
check_lines() {
    [ $printing = no ] || return 0
    [ -f "$1" ] || fail "$1: no such file; use the corpus named in the README, or --small DATA"
    [ "$(wc -l <"$1")" -eq "$2" ] ||
        fail "$1: $(wc -l <"$1") lines, not $2; use the corpus named in the README, or --small"
    check_text "$1"
}
