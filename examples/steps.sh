# Sourced by the recipes after environment.sh: the functions that they share.

# asked STEP: whether the step is one of $todo, the steps to run.
asked() {
    case " $todo " in *" $1 "*) true ;; *) false ;; esac
}

# have FILE STEP: stop unless the file exists, which STEP writes.
have() {
    [ -e "$1" ] || fail "$1 does not exist; run the step $2 first"
}

# check_numbers OPTION VALUES: stop unless all values are whole numbers, 1 or more.
check_numbers() {
    local value
    for value in $2; do
        case $value in *[!0-9]* | 0*) fail "$1 $value: give a number, 1 or more" ;; esac
    done
}

# check_names OPTION VALUES NAMES: stop unless all values are among the names.
check_names() {
    local value
    for value in $2; do
        case " $3 " in *" $value "*) ;; *) fail "$1 $value: unknown; $usage" ;; esac
    done
}

# parse_options NAMES NUMBERS ARGUMENTS…: parse the command line. NAMES are the options with any value, NUMBERS those
# with one or several numbers. Sets $small, $input (DATA), the array extra (everything after --), and a variable for
# each option: $todo for --steps, $own_updates for --updates, $own_finetune_updates for --finetune-updates, $update_freq
# for --update-freq.
parse_options() {
    local names=$1 numeric=$2 option
    shift 2
    while [ $# -gt 0 ]; do
        option=${1#--}
        case $1 in
            --small) small=yes; shift; continue ;;
            --) shift; extra=("$@"); break ;;
        esac
        case $1:" $names $numeric " in
            --*:*" $option "*)
                [ $# -ge 2 ] || fail "$1 needs a value"
                case " $numeric " in *" $option "*) check_numbers "$1" "$2" ;; esac
                case $option in
                    steps) option=todo ;;
                    updates | finetune-updates) option=own_${option//-/_} ;;
                esac
                printf -v "${option//-/_}" %s "$2" # (macOS's bash has no declare -g)
                shift 2
                ;;
            -*) fail "$1: unknown option; $usage" ;;
            *) [ -z "$input" ] || fail "$1: only one DATA can be given; $usage"; input=$1; shift ;;
        esac
    done
}

# absolute PATH: print the absolute path of a file that exists, and anything else unchanged.
absolute() {
    if [ -e "$1" ]; then echo "$(cd "$(dirname "$1")" && pwd)/$(basename "$1")"; else echo "$1"; fi
}

# composition_options MODEL: print the options of the Feedback Transformer whose memory composition MODEL names (v1
# Table 5, v3 Figures 5 and 8); nothing if MODEL is an architecture.
composition_options() {
    case $1 in
        weighted | average | same-and-lower | previous) echo "--memory-projections per-layer --memory-composition $1" ;;
        layer[0-9]*) echo "--memory-projections per-layer --memory-composition layer:${1#layer}" ;;
    esac
}

# find_devices: train with one process per GPU, or with one on the CPU. Sets $processes, and $cpu to fairseq's option.
find_devices() {
    cpu="" processes=$(python -c 'import torch; print(torch.cuda.device_count())')
    if [ "$processes" = 0 ]; then cpu=--cpu processes=1; fi
}

# share_cores: divide the cores between $jobs parallel runs, unless OMP_NUM_THREADS is set.
share_cores() {
    [ "$jobs" -gt 1 ] || return 0
    export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(python -c "import os; print(max(1, os.cpu_count() // $jobs))")}
}

# wait_for_slot: wait until fewer than $jobs runs are in the background.
wait_for_slot() {
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do sleep 1; done
}

# wait_for_runs FAILED LOGS: wait for all runs in the background; stop if the file FAILED names some. LOGS: where to
# look.
wait_for_runs() {
    wait
    [ ! -e "$1" ] || fail "some runs failed: $(paste -sd " " "$1"); see $2. To resume, run the same command again"
}

# logged WHAT LOG COMMAND…: run a command with its output in LOG; if it fails, stop with the log's last line.
logged() {
    local what=$1 log=$2
    shift 2
    "$@" >"$log" 2>&1 || fail "$what failed: $(tail -n 1 "$log"); see $log"
}

# run_training RUN UPDATES EVERY DATA OPTIONS…: train with fairseq-train, and validate and save every EVERY updates,
# with $seed, $cpu and the options in extra. Writes the checkpoints to RUN/, the command and its log to RUN.log, the
# seconds that it took to RUN.seconds. Resumes a run that was stopped, and skips one that is finished.
run_training() {
    local run=$1 target=$2 every=$3 data=$4 never=1000000 started=$SECONDS seconds=0 failed=no
    shift 4
    if [ "$(cat "$run.done" 2>/dev/null || true)" = "$target" ]; then
        echo "== $(basename "$run"): already trained for $target updates"
        return
    fi
    echo "== $(basename "$run"): $target updates"
    # Validation and checkpoints follow the updates only: the length of an epoch depends on the data.
    set -- "$data" --user-dir fb_fairseq "$@" --validate-interval-updates "$every" --save-interval-updates "$every" \
        --validate-interval $never --save-interval $never --no-epoch-checkpoints --seed "$seed" $cpu \
        --log-format json --log-interval 25 ${extra[@]+"${extra[@]}"} --max-update "$target" --save-dir "$run"
    echo "fairseq-train $*" >>"$run.log"
    fairseq-train "$@" >>"$run.log" 2>&1 || failed=yes
    if [ -e "$run.seconds" ]; then seconds=$(cat "$run.seconds"); fi
    echo $((seconds + SECONDS - started)) >"$run.seconds"
    [ $failed = no ] || fail "training failed: $(tail -n 1 "$run.log"); see $run.log"
    echo "$target" >"$run.done"
}

# parameters_of RUN: print the number of parameters from the training log.
parameters_of() {
    sed -n 's/.*shared model params: \([0-9,]*\).*/\1/p' "$1.log" | tail -n 1 | tr -d ,
}

# collect_results OUT: merge OUT/<model>.json of all models into OUT/results.json.
collect_results() {
    python - "$1" <<'PY'
import glob, json, os, sys
out = sys.argv[1]
files = [f for f in sorted(glob.glob(f"{glob.escape(out)}/*.json")) if os.path.basename(f) != "results.json"]
results = {os.path.basename(f)[:-5]: json.load(open(f)) for f in files}
json.dump(results, open(f"{out}/results.json", "w"), indent=4)
print(f"{out}/results.json")
PY
}

# draw_curves OUT METRIC: draw the learning curves of all OUT/<model>.log, fine-tuning left out, to OUT/curves.png.
draw_curves() {
    local log curves=()
    for log in "$1"/*.log; do
        case $log in *-finetuned.log | *"*.log") ;; *) curves+=("$(basename "$log" .log)=$log") ;; esac
    done
    [ ${#curves[@]} = 0 ] || python -m fb_fairseq plot --curves "${curves[@]}" --metric "$2" --out "$1/curves.png"
}

# unpack FILE OUT [MEMBER]: copy a plain file, unpack a .gz, or extract MEMBER (or the only file) from a .zip.
unpack() {
    [ -f "$1" ] || fail "$1: no such file"
    case $1 in
        *.gz) gzip -dc "$1" >"$2" || fail "$1: cannot be unpacked; give an intact copy" ;;
        *.zip)
            python - "$@" <<'PY' 2>/dev/null || fail "$1: cannot be unpacked; give an intact copy with ${3:-one file}"
import shutil, sys, zipfile
archive = zipfile.ZipFile(sys.argv[1])
names = archive.namelist()
with archive.open(names[0] if len(names) == 1 else sys.argv[3]) as member, open(sys.argv[2], "wb") as out:
    shutil.copyfileobj(member, out)
PY
            ;;
        *) cp "$1" "$2" ;;
    esac
}

# check_file FILE BYTES MD5 NAME: stop unless the file is the published one. BYTES may be empty.
check_file() {
    local found
    found=$(python -c "import hashlib, os, sys
digest = hashlib.md5()
with open(sys.argv[1], 'rb') as file:
    for chunk in iter(lambda: file.read(1 << 20), b''):
        digest.update(chunk)
print(os.path.getsize(sys.argv[1]), digest.hexdigest())" "$1")
    [ "$found" = "$2 $3" ] || [ "${found#* }" = "$3" -a -z "$2" ] ||
        fail "$1: ${found% *} bytes, md5 ${found#* }; $4 has ${2:+$2 bytes, }md5 $3. Give an intact copy," \
            "or --small DATA for any other text"
}
