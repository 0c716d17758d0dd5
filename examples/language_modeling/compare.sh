# Sourced by the small recipes, after environment.sh: the Feedback Transformer against its baseline.
#
#   compare_models DATA OUT NAME OPTIONS…   train both with these options of fairseq-train; evaluate on the test split
#   write_results OUT METRIC                OUT/results.json, and the curves of METRIC to OUT/curves.png
#
# Both have the same parameters, but for 1 + layers scalars, and the same updates. $updates, $seed, $steps (of a block)
# and $valid_streams are the caller's.

results=()
curves=()

compare_models() {
    local data=$1 out=$2 name=$3 arch run projections started seconds bits parameters
    shift 3
    for arch in feedback_transformer_lm relative_transformer_lm; do
        run=$out/$arch-$name
        projections=
        [ $arch = relative_transformer_lm ] || projections="--memory-projections per-layer"
        echo "== $arch, $name"
        rm -rf "$run" "$run.log"
        started=$SECONDS
        fairseq-train "$data" --user-dir fb_fairseq --task streaming_lm --arch $arch $projections "$@" \
            --decoder-normalize-before --tokens-per-sample "$steps" --valid-streams "$valid_streams" \
            --criterion lm_loss --optimizer adam --lr-scheduler cosine --warmup-updates 100 --max-update "$updates" \
            --validate-interval-updates 250 --save-interval-updates "$updates" --no-epoch-checkpoints --cpu \
            --seed "$seed" --log-format json --log-interval 25 --log-file "$run.log" --save-dir "$run" >/dev/null ||
            fail "training stopped; $run.log says more"
        seconds=$((SECONDS - started))
        fairseq-eval-lm "$data" --user-dir fb_fairseq --task streaming_lm --gen-subset test \
            --valid-streams "$valid_streams" --tokens-per-sample "$steps" --softmax-batch 4096 \
            --path "$run/checkpoint_last.pt" --cpu >"$run.eval" 2>&1 || fail "evaluation stopped; $run.eval says more"
        bits=$(sed -n 's/.*Loss (base 2): \([0-9.]*\),.*/\1/p' "$run.eval")
        parameters=$(sed -n 's/.*shared model params: \([0-9,]*\) .*/\1/p' "$run.log" | tr -d , | tail -n 1)
        echo "$bits bits per token on the test split, $parameters parameters, trained in $seconds s"
        results+=("\"$arch-$name\": {\"test_bits_per_token\": $bits, \"parameters\": $parameters, \"seconds\": $seconds}")
        curves+=("$arch-$name=$run.log")
    done
}

write_results() {
    (IFS=,; echo "{${results[*]}}") | python -m json.tool >"$1/results.json"
    python -m fb_fairseq.plot --curves "${curves[@]}" --metric "$2" --out "$1/curves.png"
}

# Unpack a file, .gz or not, to another.
unpack() {
    case $1 in *.gz) gzip -dc "$1" >"$2" ;; *) cp "$1" "$2" ;; esac
}

# Options of the small recipes: sets the variables named in $recipe_options, and $input to what is no option.
parse_recipe() {
    input=
    while [ $# -gt 0 ]; do
        case " $recipe_options " in
            *" ${1#--} "*)
                [ $# -ge 2 ] || { echo "error: $1 needs a value" >&2; exit 2; }
                printf -v "${1#--}" %s "$2" # (declare -g is not in the bash of macOS)
                shift 2
                ;;
            *)
                case $1 in -*) echo "error: $1: unknown option; there are --${recipe_options// / --}" >&2; exit 2 ;; esac
                input=$1
                shift
                ;;
        esac
    done
}
