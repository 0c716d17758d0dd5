# Sourced by examples/translation/*/run.sh and examples/summarization/*/run.sh, each of which sets what is its own and
# calls run_recipe "$@":
#
#   corpus, pair  runs go to runs/$corpus, or runs/$corpus-small; pair is the languages, as "de en"
#   architectures the vanilla and the feedback one in the papers' setting, as "transformer_iwslt_de_en feedback_decoder_iwslt_de_en"
#   prepare DATA DESTDIR
#                 function: check the user's copy and binarise it
#   full_setting, small_setting
#                 functions: set updates, tokens (of an update), every (updates between validations), averaged (how many
#                 checkpoints; 1: the best one), lenpens, metric (what is tuned and reported first), and the arrays
#                 training and decoding
#   shape LAYERS  function: add to the array model_options
#
# Models: transformer (vanilla), feedback (from scratch), initialised (a feedback decoder that starts with the vanilla
# model's parameters). $language is that of the target, $task_options an array for training and decoding, where a recipe
# sets them. The steps are prepare, train, average, tune (the length penalty, on the validation set), generate
# and score (the test set); what is done is not done again.

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$repository/examples/environment.sh"
. "$repository/examples/steps.sh"

usage="give DATA or --small DATA, and --out DIR --steps \"prepare train average tune generate score\"\
 --models \"transformer feedback initialised\" --layers \"N …\" --projections per-layer|shared --updates N\
 --update-freq N --seed N, -- options of fairseq-train"

run_recipe() {
    local layer model run
    parse "$@"
    input=$(absolute "$input")
    mkdir -p "$out"
    out=$(cd "$out" && pwd) data=$out/data
    cd "$repository"
    make_environment
    if asked prepare && [ ! -s "$data/dict.${pair#* }.txt" ]; then
        echo "== prepare"
        rm -rf "$data.tmp"
        prepare "$input" "$data.tmp"
        mv "$data.tmp" "$data"
    fi
    [ -s "$data/dict.${pair#* }.txt" ] || fail "$data: no prepared data; run the step prepare first"
    devices=$(python -c 'import torch; print(torch.cuda.device_count())')
    cpu=--cpu processes=1
    if [ "$devices" != 0 ]; then cpu="" processes=$devices; fi
    for layer in $layers; do
        for model in $models; do
            run_steps "$out/$model-$layer"
        done
    done
    if asked score; then collect_results "$out"; fi
    draw_curves "$out" nll_loss
}

parse() {
    local step
    small=no input="" out="" layers="" models="transformer feedback initialised" projections=per-layer seed=1
    update_freq=1 own_updates="" todo="prepare train average tune generate score" extra=()
    parse_options "out steps models projections" "layers updates update-freq seed" "$@"
    for step in $todo; do
        case $step in prepare | train | average | tune | generate | score) ;; *) fail "--steps $step: unknown; $usage" ;; esac
    done
    for step in $models; do
        case $step in transformer | feedback | initialised) ;; *) fail "--models $step: unknown; $usage" ;; esac
    done
    if asked prepare && [ -z "$input" ]; then fail "DATA is missing; $usage"; fi
    if [ $small = yes ]; then small_setting; else full_setting; fi
    out=${out:-$repository/runs/$corpus$([ $small = no ] || echo -small)}
    language=${language:-${pair#* }} task_options=(${task_options[@]+"${task_options[@]}"})
    layers=${layers:-$default_layers} updates=${own_updates:-$updates}
}

# run_steps RUN: what was asked for, of one model ($model, $layer).
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

# train RUN: to RUN/, with its log in RUN.log.
train() {
    run_training "$1" "$updates" "$data" --user-dir fb_fairseq --task translation --source-lang "${pair% *}" \
        --target-lang "${pair#* }" ${task_options[@]+"${task_options[@]}"} "${model_options[@]}" "${training[@]}" --criterion label_smoothed_cross_entropy \
        --label-smoothing 0.1 --optimizer adam --adam-betas "(0.9, 0.98)" \
        --max-tokens $((tokens / processes / update_freq)) --update-freq "$update_freq" \
        --validate-interval-updates "$every" --save-interval-updates "$every" --keep-interval-updates "$averaged" \
        --validate-interval 1000000 --save-interval 1000000 --no-epoch-checkpoints --seed "$seed" $cpu \
        --log-format json --log-interval 25 --num-workers 0 ${extra[@]+"${extra[@]}"}
}

# average RUN: the mean of the last checkpoints, or the best one, to RUN.pt.
average() {
    have "$1/checkpoint_best.pt" train
    [ ! "$1.pt" -nt "$1.done" ] || return 0
    if [ "$averaged" = 1 ]; then
        cp "$1/checkpoint_best.pt" "$1.pt.tmp"
        mv "$1.pt.tmp" "$1.pt"
    else
        python -m fb_fairseq average-checkpoints --inputs "$1" --num-update-checkpoints "$averaged" --output "$1.pt"
    fi
}

# generate RUN SUBSET LENPEN OUT: fairseq-generate, whole.
generate() {
    have "$1.pt" average
    fairseq-generate "$data" --user-dir fb_fairseq --task translation --source-lang "${pair% *}" \
        --target-lang "${pair#* }" ${task_options[@]+"${task_options[@]}"} --gen-subset "$2" --path "$1.pt" --lenpen "$3" \
        --remove-bpe --max-tokens 4000 --required-batch-size-multiple 1 --num-workers 0 $cpu "${decoding[@]}" >"$4.tmp" \
        2>"$4.err" || fail "generation stopped: $(tail -n 1 "$4.err"); $4.err says more"
    mv "$4.tmp" "$4"
}

# tune RUN: the length penalty that is best on the validation set, to RUN.lenpen.
tune() {
    local lenpen value best="" chosen=1.0
    have "$1.pt" average
    [ ! "$1.lenpen" -nt "$1.pt" ] || return 0
    for lenpen in $lenpens; do
        generate "$1" valid "$lenpen" "$1.valid"
        value=$(python -m fb_fairseq score --gen "$1.valid" --language "$language" --metrics ${metric%%:*} |
            python -c "import json, sys; print(json.load(sys.stdin)['${metric#*:}'])")
        echo "== $(basename "$1"): ${metric#*:} $value on the validation set with length penalty $lenpen"
        if [ -z "$best" ] || python -c "import sys; sys.exit(not $value > $best)"; then
            best=$value chosen=$lenpen
        fi
    done
    echo "$chosen" >"$1.lenpen"
}

# generate_test RUN: the test set, with the length penalty that was found, to RUN.test.
generate_test() {
    have "$1.pt" average
    if [ "$1.test" -nt "$1.pt" ] && [ ! "$1.lenpen" -nt "$1.test" ]; then return 0; fi
    generate "$1" test "$(cat "$1.lenpen" 2>/dev/null || echo 1.0)" "$1.test"
}

# score RUN: the test set, to RUN.json.
score() {
    have "$1.test" generate
    local raw=()
    [ ! -e "$out/test.raw.${pair#* }" ] || raw=(--raw-ref "$out/test.raw.${pair#* }")
    python -m fb_fairseq score --gen "$1.test" --language "$language" ${raw[@]+"${raw[@]}"} >"$1.score" ||
        fail "scoring stopped"
    python - "$1" <<'PY'
import json, os, re, sys
run = sys.argv[1]
result = json.load(open(f"{run}.score"))
log = open(f"{run}.log").read()
result["parameters"] = int(re.findall(r"shared model params: ([\d,]+)", log)[-1].replace(",", ""))
result["best_valid_loss"] = min(map(float, re.findall(r'"valid_loss": "([\d.]+)"', log)))
for name, read in (("seconds", int), ("lenpen", float)):
    if os.path.exists(f"{run}.{name}"):
        result[name] = read(open(f"{run}.{name}").read())
words = re.findall(r"Translated [\d,]+ sentences \([\d,]+ tokens\) in [\d.]+s \([\d.]+ sentences/s, ([\d.]+) tokens/s\)", open(f"{run}.test.err").read() + open(f"{run}.test").read())
result["decoded_tokens_per_second"] = float(words[-1]) if words else None
json.dump(result, open(f"{run}.json", "w"))
print(f"== {os.path.basename(run)}: {json.dumps(result)}")
PY
}

# words FILE LANGUAGE OUT: text to Moses' tokens.
words() {
    sacremoses -q -l "$2" tokenize <"$1" >"$3" 2>/dev/null || fail "$1: cannot be tokenised"
}

# subwords MERGES TRAIN: one BPE code for both languages (TRAIN.xx), applied to $out/{train,valid,test}.tok.xx.
subwords() {
    local language split
    cat "$2.${pair% *}" "$2.${pair#* }" | subword-nmt learn-bpe -s "$1" >"$out/codes" 2>"$out/bpe.err" ||
        fail "BPE stopped: $(tail -n 1 "$out/bpe.err")"
    for language in $pair; do
        for split in train valid test; do
            subword-nmt apply-bpe -c "$out/codes" <"$out/$split.tok.$language" >"$out/$split.bpe.$language" 2>>"$out/bpe.err"
        done
    done
}

# binarise TRAIN VALID TEST DESTDIR [--joined-dictionary]: prefixes of the files in both languages.
binarise() {
    fairseq-preprocess --source-lang "${pair% *}" --target-lang "${pair#* }" --trainpref "$1" --validpref "$2" \
        --testpref "$3" --destdir "$4" ${5:-} --workers 1 >"$out/preprocess.out" 2>&1 ||
        fail "preprocessing stopped: $(tail -n 1 "$out/preprocess.out"); $out/preprocess.out says more"
}

# lines FILE NUMBER: stop unless the file has that many.
lines() {
    [ -f "$1" ] || fail "$1: no such file"
    [ "$(wc -l <"$1")" -eq "$2" ] || fail "$1: $(wc -l <"$1") lines, not $2; give the corpus named in the README, or --small"
}
