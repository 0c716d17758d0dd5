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
#                 last checkpoints to average; 1: take the best one), lenpens (length penalties to try), default_layers,
#                 and the arrays training (options of training) and decoding (options of generation)
#   shape LAYERS  function: add the model's size to the array model_options
#   language      optional: language of the target text (default: the target language)
#   task_options  optional: array of options of both training and generation
#
# Models: transformer (vanilla), feedback (trained from scratch), initialised (a feedback decoder initialised with the
# parameters of the vanilla model). The steps are prepare, train, average, tune (the length penalty, on the validation
# set), generate and score (both on the test set). Finished steps are not repeated.

. "$(dirname -- "${BASH_SOURCE[0]}")/../steps.sh"

usage="give DATA or --small DATA, and --out DIR --steps \"prepare train average tune generate score\"\
 --models \"transformer feedback initialised\" --layers \"N …\" --projections per-layer|shared --updates N\
 --update-freq N --seed N --nodes N --node-rank N --rendezvous HOST:PORT --print, -- options\
 of fairseq-train"

# run_recipe ARGUMENTS…: run the steps that the command line names, for every model and number of layers.
run_recipe() {
    local layer model run
    parse "$@"
    start
    data=$out/data
    if asked prepare; then prepare_data "$corpus$([ $small = no ] || echo " --small")"; fi
    [ "$node_rank" != 0 ] || [ $printing = yes ] || [ -s "$data/dict.${pair#* }.txt" ] ||
        fail "$data: no prepared data; run step prepare first"
    find_devices
    for layer in $layers; do
        for model in $models; do
            run_steps "$out/$model-$layer"
        done
    done
    [ "$node_rank" = 0 ] || exit 0
    if asked score; then collect_results "$out"; fi
    draw_curves "$out" nll_loss
}

# parse ARGUMENTS…: read the command line and set the defaults.
parse() {
    small=no input="" out="" layers="" models="transformer feedback initialised" projections=per-layer seed=1
    update_freq=1 own_updates="" nodes="" node_rank="" rendezvous="" extra=()
    todo="prepare train average tune generate score"
    parse_options "out steps models projections node-rank rendezvous" "layers+ updates update-freq seed nodes" "$@"
    check_names --steps "$todo" "prepare train average tune generate score"
    check_names --models "$models" "transformer feedback initialised"
    check_names --projections "$projections" "per-layer shared"
    find_input
    if [ $small = yes ]; then small_setting; else full_setting; fi
    out=${out:-$repository/runs/$corpus$([ $small = no ] || echo -small)}
    language=${language:-${pair#* }} task_options=(${task_options[@]+"${task_options[@]}"})
    layers=${layers:-$default_layers} updates=${own_updates:-$updates}
    check_out
    find_nodes
}

# run_steps RUN: run the requested steps for $model with $layer decoder layers.
run_steps() {
    local run=$1 step vanilla=$out/transformer-$layer/checkpoint_best.pt
    model_options=()
    shape "$layer"
    case $model in
        transformer) model_options+=(--arch "${architectures% *}") ;;
        *) model_options+=(--arch "${architectures#* }" --memory-projections "$projections") ;;
    esac
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

# generate RUN SUBSET LENPEN OUT: run fairseq-generate; OUT appears only when all sentences are done.
generate() {
    have "$1.pt" average
    filtered generation "$4.err" "" "$4" fairseq-generate "$data" --user-dir fb_fairseq --task translation \
        --source-lang "${pair% *}" --target-lang "${pair#* }" ${task_options[@]+"${task_options[@]}"} \
        --gen-subset "$2" --path "$1.pt" \
        --lenpen "$3" --remove-bpe --max-tokens 4000 --required-batch-size-multiple 1 --num-workers 0 $cpu \
        "${decoding[@]}"
}

# tune RUN: write the length penalty with the best $metric on the validation set to RUN.lenpen.
tune() {
    local lenpen value best="" chosen=1.0
    have "$1.pt" average
    [ $printing = yes ] || [ ! "$1.lenpen" -nt "$1.pt" ] || return 0
    for lenpen in $lenpens; do
        comment "tune the length penalty of ${1##*/}: $lenpen"
        generate "$1" valid "$lenpen" "$1.valid"
        if [ $printing = yes ]; then
            show "" python -m fb_fairseq score --gen "$1.valid" --language "$language" --metrics ${metric%%:*}
            continue
        fi
        value=$(python -m fb_fairseq score --gen "$1.valid" --language "$language" --metrics ${metric%%:*} |
            python -c "import json, sys; print(json.load(sys.stdin)['${metric#*:}'])")
        echo "== $(basename "$1"): ${metric#*:} $value on the validation set with length penalty $lenpen"
        if [ -z "$best" ] || python -c "import sys; sys.exit(not $value > $best)"; then
            best=$value chosen=$lenpen
        fi
    done
    [ $printing = yes ] || echo "$chosen" >"$1.lenpen"
}

# generate_test RUN: translate the test set with the tuned length penalty to RUN.test.
generate_test() {
    have "$1.pt" average
    if [ $printing = yes ]; then
        comment "generate with ${1##*/} (--lenpen: the best one of tune)"
        case $lenpens in *" "*) generate "$1" test 1.0 "$1.test" ;; *) generate "$1" test "$lenpens" "$1.test" ;; esac
        return
    fi
    if [ "$1.test" -nt "$1.pt" ] && [ ! "$1.lenpen" -nt "$1.test" ]; then return 0; fi
    generate "$1" test "$(cat "$1.lenpen" 2>/dev/null || echo 1.0)" "$1.test"
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
    python - "$1" "$(parameters_of "$1")" <<'PY'
import json, os, re, sys
run = sys.argv[1]
result = json.load(open(f"{run}.score"))
result["parameters"] = int(sys.argv[2])
log = open(f"{run}.log").read()
result["best_valid_loss"] = min(map(float, re.findall(r'"valid_loss": "([\d.]+)"', log)))
for name, read in (("seconds", int), ("lenpen", float)):
    if os.path.exists(f"{run}.{name}"):
        result[name] = read(open(f"{run}.{name}").read())
output = open(f"{run}.test.err").read() + open(f"{run}.test").read()
speeds = re.findall(r"Translated [\d,]+ sentences .* \([\d.]+ sentences/s, ([\d.]+) tokens/s\)", output)
result["decoded_tokens_per_second"] = float(speeds[-1]) if speeds else None
json.dump(result, open(f"{run}.json", "w"))
print(f"== {os.path.basename(run)}: {json.dumps(result)}")
PY
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
