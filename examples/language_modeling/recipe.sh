# Sourced by examples/language_modeling/*/run.sh, each of which sets what is its corpus's own and calls run_recipe "$@":
#
#   corpus        the architecture is feedback_transformer_lm_$corpus, unless --models says otherwise
#   metric        what --curves shows: bpb, loss or ppl
#   prompt        generation goes on from it
#   prepare DATA  function: binarise the user's copy to $data, after checking it
#   full_setting, small_setting
#                 functions: set updates, finetune_updates, every (updates between validations), streams (of an update),
#                 steps (of a block), valid_streams, lr, and the arrays optimisation (options of both trainings) and
#                 warmup (of the first training only)
#   shape LAYERS  function, --small only: add to the array model_options
#
# The steps are prepare, train, finetune, evaluate, generate; each takes up where an earlier run of the recipe stopped.

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$repository/examples/environment.sh"

usage="give DATA or --small DATA, and --out DIR --steps \"prepare train finetune evaluate generate\" --models \"NAME …\"\
 --layers \"N …\" (with --small) --updates N --finetune-updates N --update-freq N --seed N, -- options of fairseq-train"

run_recipe() {
    local small=no input="" out="" layers="" models="" seed=1 update_freq=1 own_updates="" own_finetune_updates=""
    local todo="prepare train finetune evaluate generate" extra=() step model name run
    while [ $# -gt 0 ]; do
        case $1 in
            --small) small=yes; shift; continue ;;
            --) shift; extra=("$@"); break ;;
            --out | --steps | --models | --layers | --updates | --finetune-updates | --update-freq | --seed)
                [ $# -ge 2 ] || fail "$1 needs a value"
                case $1 in
                    --out) out=$2 ;;
                    --steps) todo=$2 ;;
                    --models) models=$2 ;;
                    --layers) layers=$2 ;;
                    --updates) own_updates=$2 ;;
                    --finetune-updates) own_finetune_updates=$2 ;;
                    --update-freq) update_freq=$2 ;;
                    --seed) seed=$2 ;;
                esac
                shift 2
                ;;
            -*) fail "$1: unknown option; $usage" ;;
            *) [ -z "$input" ] || fail "$1: one DATA only; $usage"; input=$1; shift ;;
        esac
    done
    for step in $todo; do
        case $step in prepare | train | finetune | evaluate | generate) ;; *) fail "--steps $step: unknown; $usage" ;; esac
    done
    case " $todo " in *" prepare "*) [ -n "$input" ] || fail "DATA is missing; $usage" ;; esac
    if [ $small = yes ]; then
        small_setting
        out=${out:-$repository/runs/$corpus-small} models=${models:-feedback_transformer_lm relative_transformer_lm}
        layers=${layers:-$small_layers}
    else
        [ -z "$layers" ] || fail "--layers: only with --small"
        full_setting
        out=${out:-$repository/runs/$corpus} models=${models:-feedback_transformer_lm_$corpus} layers=full
    fi
    updates=${own_updates:-$updates} finetune_updates=${own_finetune_updates:-$finetune_updates}
    [ -z "$input" ] || [ ! -e "$input" ] || input=$(cd "$(dirname "$input")" && pwd)/$(basename "$input")
    mkdir -p "$out"
    out=$(cd "$out" && pwd) data=$out/data
    cd "$repository"
    make_environment
    results=() curves=()
    case " $todo " in *" prepare "*)
        echo "== prepare"
        rm -rf "$data.tmp"
        prepare "$input" "$data.tmp"
        rm -rf "$data"
        mv "$data.tmp" "$data"
        ;;
    esac
    [ -s "$data/dict.txt" ] || fail "$data: no prepared data; run the step prepare first"
    device=$(python -c 'import torch; print(torch.cuda.device_count() or "")')
    processes=${device:-1}
    [ -n "$device" ] || cpu=--cpu
    [ $((streams % (processes * update_freq))) = 0 ] ||
        fail "--update-freq $update_freq: $streams streams cannot be shared by $processes processes x $update_freq"
    for layer in $layers; do
        for model in $models; do
            name=$model run=$out/$model model_options=(--arch "$model")
            if [ $small = yes ]; then
                name=$model-$layer run=$out/$model-$layer
                shape "$layer"
                # Equal parameters: the Feedback Transformer has 1 + layers scalars more.
                [ "$model" != feedback_transformer_lm ] || model_options+=(--memory-projections per-layer)
            fi
            for step in $todo; do
                case $step in
                    train)
                        echo "== $name: train, $updates updates"
                        train "$run" --lr "$lr" --max-update "$updates" ${warmup[@]+"${warmup[@]}"}
                        ;;
                    finetune)
                        # "The final performances are obtained by finetuning the models with a 10x smaller learning
                        # rate" (v3, §7.6).
                        have "$run/checkpoint_best.pt" train
                        echo "== $name: fine-tune at a tenth of the learning rate, $finetune_updates updates"
                        train "$run-finetuned" --finetune-from-model "$run/checkpoint_best.pt" \
                            --lr "$(python -c "print($lr / 10)")" --max-update "$finetune_updates"
                        ;;
                    evaluate)
                        evaluate "$run" trained
                        [ ! -e "$run-finetuned/checkpoint_best.pt" ] || evaluate "$run-finetuned" fine-tuned
                        ;;
                    generate)
                        generate "$run"
                        ;;
                esac
            done
            if [ -s "$run.log" ]; then curves+=("$name=$run.log"); fi
        done
    done
    if [ ${#results[@]} -gt 0 ]; then
        (IFS=,; echo "{${results[*]}}") | python -m json.tool >"$out/results.json"
        echo "$out/results.json"
    fi
    [ ${#curves[@]} = 0 ] || python -m fb_fairseq.plot --curves "${curves[@]}" --metric $metric --out "$out/curves.png"
}

have() {
    [ -e "$1" ] || fail "$1: not there; run the step $2 first"
}

# train RUN OPTIONS…: to RUN/, with its log in RUN.log; goes on where an earlier run stopped.
train() {
    local run=$1 started=$SECONDS seconds=0
    shift
    fairseq-train "$data" --user-dir fb_fairseq --task streaming_lm --criterion lm_loss "${model_options[@]}" \
        --tokens-per-sample "$steps" --batch-size $((streams / processes / update_freq)) --update-freq "$update_freq" \
        --valid-streams "$valid_streams" --optimizer adam "${optimisation[@]}" \
        --validate-interval-updates "$every" --save-interval-updates "$every" --keep-interval-updates 1 \
        --no-epoch-checkpoints --seed "$seed" ${cpu:-} --log-format json --log-interval 25 --log-file "$run.log" \
        --save-dir "$run" "$@" ${extra[@]+"${extra[@]}"} >"$run.out" 2>&1 ||
        fail "training stopped: $(tail -n 1 "$run.out"); $run.out says more"
    [ ! -e "$run.seconds" ] || seconds=$(cat "$run.seconds")
    echo $((seconds + SECONDS - started)) >"$run.seconds"
}

# evaluate RUN HOW: the test split with RUN's best checkpoint.
evaluate() {
    local run=$1 bits parameters
    have "$run/checkpoint_best.pt" train
    fairseq-eval-lm "$data" --user-dir fb_fairseq --task streaming_lm --gen-subset test --valid-streams "$valid_streams" \
        --tokens-per-sample "$steps" --softmax-batch 4096 --path "$run/checkpoint_best.pt" ${cpu:-} >"$run.eval" 2>&1 ||
        fail "evaluation stopped: $(tail -n 1 "$run.eval"); $run.eval says more"
    bits=$(sed -n 's/.*Loss (base 2): \([0-9.]*\),.*/\1/p' "$run.eval")
    parameters=$(sed -n 's/.*shared model params: \([0-9,]*\) .*/\1/p' "$run.log" | tr -d , | tail -n 1)
    echo "== $name, $2: $bits bits per token on the test split; $parameters parameters, $(cat "$run.seconds") s"
    results+=("\"$(basename "$run")\": {\"test_bits_per_token\": $bits, \"test_perplexity\": $(python -c \
        "print(round(2 ** $bits, 3))"), \"parameters\": $parameters, \"seconds\": $(cat "$run.seconds")}")
}

# generate RUN: go on from $prompt, with the last checkpoint there is.
generate() {
    local checkpoint=$1-finetuned/checkpoint_best.pt
    [ -e "$checkpoint" ] || checkpoint=$1/checkpoint_best.pt
    have "$checkpoint" train
    printf '%s\n' "$prompt" | fairseq-interactive "$data" --user-dir fb_fairseq --task streaming_lm --sampling \
        --sampling-topk 10 --beam 1 --max-len-b 200 --seed "$seed" ${cpu:-} --path "$checkpoint" >"$1.sample" 2>&1 ||
        fail "generation stopped: $(tail -n 1 "$1.sample"); $1.sample says more"
    echo "== $name goes on from: $prompt"
    grep '^D-0' "$1.sample" | cut -f 3
}

# preprocess TRAIN VALID TEST DESTDIR: fairseq's own, for text in words.
preprocess() {
    mkdir -p "$4"
    fairseq-preprocess --only-source --trainpref "$1" --validpref "$2" --testpref "$3" --destdir "$4" --workers 1 \
        >"$out/preprocess.log" 2>&1 || fail "preprocessing stopped; $out/preprocess.log says more"
}

# unpack FILE OUT: FILE as it is, or out of .gz, or the member OUT's name says out of .zip.
unpack() {
    case $1 in
        *.gz) gzip -dc "$1" >"$2" ;;
        *.zip) python -c "import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as archive, open(sys.argv[2], 'wb') as out:
    shutil.copyfileobj(archive.open(sys.argv[3]), out)" "$1" "$2" "$3" || fail "$1: $3 cannot be unpacked from it" ;;
        *) cp "$1" "$2" ;;
    esac
}

# check FILE BYTES MD5 WHAT: stop unless the file is the published one.
check() {
    local found
    found=$(python -c "import hashlib, os, sys
digest = hashlib.md5()
with open(sys.argv[1], 'rb') as file:
    for chunk in iter(lambda: file.read(1 << 20), b''):
        digest.update(chunk)
print(os.path.getsize(sys.argv[1]), digest.hexdigest())" "$1")
    [ "$found" = "$2 $3" ] || [ "${found#* }" = "$3" -a -z "$2" ] ||
        fail "$1: ${found% *} bytes, md5 ${found#* }; $4 has ${2:+$2 bytes, }md5 $3. Give an intact copy, or --small DATA for other text"
}
