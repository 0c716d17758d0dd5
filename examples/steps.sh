# Sourced by quickstart.sh and the recipes: the functions that they share.

. "$(dirname -- "${BASH_SOURCE[0]}")/printing.sh"

nodes=1 node_rank=0 # see find_nodes

# asked STEP: whether the step is one of $todo, the steps to run.
asked() {
    case " $todo " in *" $1 "*) true ;; *) false ;; esac
}

# find_input: make $input, DATA, absolute; stop if it is missing and needed. With --print, the word DATA stands for it.
find_input() {
    if [ $printing = yes ] && [ -z "$input" ]; then input=$repository/DATA; fi
    if asked prepare && [ -z "$input" ]; then fail "DATA is missing; $usage"; fi
    absolute input
}

# prepare_data SETTING: let the recipe's function prepare read $input and write $data. Skipped if $input, the setting
# (whatever else the data depends on) and the data itself are as they were left last time. The data appears only when it
# is complete, and data that models were trained on is not replaced by other data.
prepare_data() {
    local setting=$1 wanted old file other="" marker=$data.prepared
    if [ $printing = yes ]; then
        comment prepare
        show "" mkdir -p "$data"
        prepare "$input" "$data"
        return
    fi
    wanted=$(printf '%s\n' "$setting" && checksums "$input")
    if [ -e "$marker" ] && [ "$(cat "$marker")" = "$wanted"$'\n'"$(sizes "$data")" ]; then
        echo "== prepare: done already"
        return
    fi
    echo "== prepare"
    claim "$data.tmp"
    trap 'rm -rf "$data.tmp"; rmdir "$out" 2>/dev/null || true' EXIT
    prepare "$input" "$data.tmp"
    rm "$data.tmp/.owner"
    for file in "$data.tmp"/train*.bin "$data.tmp"/dict*.txt; do
        [ ! -e "$data/${file##*/}" ] || cmp -s "$file" "$data/${file##*/}" || other=yes
    done
    if [ -n "$other" ] && ls "$out"/*/*.pt >/dev/null 2>&1; then
        old=$(head -n 1 "$marker" 2>/dev/null || true)
        if [ "$old" = "$setting" ]; then old=""; fi
        fail "$out: holds models that were trained on other data${old:+ ($old)}; choose another --out, or delete this one"
    fi
    rm -f "$marker" # first, so that incomplete data never counts as done
    rm -rf "$data"
    mv "$data.tmp" "$data"
    printf '%s\n' "$wanted" "$(sizes "$data")" >"$marker"
}

# claim FOLDER: make it, in place of one that a killed run has left; stop if another run is writing it.
claim() {
    local pid="" host="" here
    here=$(uname -n)
    if [ -e "$1/.owner" ]; then read -r pid host <"$1/.owner" || true; fi
    if [ "$host" = "$here" ] && ! kill -0 "$pid" 2>/dev/null; then rm -rf "$1"; fi
    mkdir "$1" 2>/dev/null || fail "$1: ${host:+process $pid on }${host:-another run} is writing it; wait for that run or,\
 if it was killed, delete this folder"
    echo "$$ $here" >"$1/.owner"
}

# checksums DATA: print the checksum of a file, or those of all files in a folder; nothing if it does not exist.
checksums() {
    if [ -f "$1" ]; then
        printf '%s ' "${1##*/}"
        cksum <"$1"
    elif [ -d "$1" ]; then
        (cd "$1" && find -L . -maxdepth 1 -type f -exec cksum {} + 2>/dev/null | LC_ALL=C sort) || true
    fi
}

# sizes FOLDER: print the names and sizes of its files.
sizes() {
    (cd "$1" && wc -c ./*) 2>/dev/null || true
}

# have FILE STEP: stop unless the file exists, which STEP writes.
have() {
    [ $printing = yes ] || [ -e "$1" ] || fail "$1 does not exist; run step $2 first"
}

# check_words OPTION VALUES: stop unless the values are words, which the shell can split and leaves as they are.
check_words() {
    case $2 in
        *[!A-Za-z0-9_\ -]*) fail "$1 $2: use only letters, digits, - and _, and spaces between words" ;;
        *[!\ ]*) ;;
        *) fail "$1 needs a value" ;;
    esac
}

# check_numbers OPTION VALUES: stop unless all values are whole numbers, 1 or more.
check_numbers() {
    local value
    check_words "$1" "$2"
    for value in $2; do
        case $value in
            *[!0-9]* | 0*) fail "$1 $value: give a number, 1 or more" ;;
            ??????????*) fail "$1 $value: must have at most nine digits" ;;
        esac
    done
}

# check_number OPTION VALUE: stop unless the value is one such number.
check_number() {
    check_numbers "$1" "$2"
    case $2 in *\ *) fail "$1 $2: takes one number" ;; esac
}

# check_names OPTION VALUES NAMES: stop unless all values are among the names.
check_names() {
    local value
    check_words "$1" "$2"
    for value in $2; do
        case " $3 " in *" $value "*) ;; *) fail "$1 $value: unknown; $usage" ;; esac
    done
}

# check_out: make the path $out absolute, and stop if fairseq would take it apart.
check_out() {
    absolute out
    case $out in
        *:*) fail "--out $out: fairseq splits paths at \":\"; choose a folder without it" ;;
        *"\${"*) fail "--out $out: fairseq expands \${…}; choose a folder without it" ;;
    esac
}

# make_out: make the path $out absolute, and create the folder. It is removed at the end if nothing was written.
make_out() {
    absolute out
    [ -d "$out" ] || trap 'rmdir "$out" 2>/dev/null || true' EXIT
    { mkdir -p "$out" && [ -w "$out" ]; } 2>/dev/null ||
        fail "--out $out: cannot create this folder or write to it; choose another"
}

# unique WORDS…: print the words without duplicates.
unique() {
    local word all=""
    for word in "$@"; do case " $all " in *" $word "*) ;; *) all+="${all:+ }$word" ;; esac; done
    echo "$all"
}

# parse_options NAMES NUMBERS ARGUMENTS…: parse the command line. NAMES are the options with any value, NUMBERS those
# with a number, or with several if their name ends in + here. Sets $small, $input (DATA), the array extra (everything
# after --), and a variable for each option: $todo for --steps, $own_updates for --updates, $own_finetune_updates for
# --finetune-updates, $update_freq for --update-freq.
parse_options() {
    local names=$1 numeric=$2 option
    shift 2
    while [ $# -gt 0 ]; do
        case $1 in
            --small) small=yes; shift; continue ;;
            --print) printing=yes; shift; continue ;;
            --) shift; extra=("$@"); break ;;
            -*) option=${1#--} ;;
            *) [ -z "$input" ] || fail "$1: only one DATA is allowed; $usage"; input=$1; shift; continue ;;
        esac
        if [[ $option = *" "* || " $names ${numeric//+/} " != *" $option "* ]]; then
            [ ! -e "./$1" ] || fail "$1: looks like an option; write ./$1 for the file or folder"
            fail "$1: unknown option; $usage"
        fi
        case ${2:-} in "" | --*) fail "$1 needs a value" ;; esac
        case $option:" $numeric " in
            out:* | rendezvous:*) ;;
            *:*" $option+ "*) check_numbers "$1" "$2" ;;
            *:*" $option "*) check_number "$1" "$2" ;;
            *) check_words "$1" "$2" ;;
        esac
        case $option in
            steps) option=todo ;;
            updates | finetune-updates | valid-streams | test-streams) option=own_$option ;;
        esac
        printf -v "${option//-/_}" %s "$2" # (macOS's bash has no declare -g)
        shift 2
    done
}

# composition_options MODEL: print the options of the Feedback Transformer whose memory composition MODEL names (v1
# Table 5, v3 Figures 5 and 8); nothing if MODEL is an architecture.
composition_options() {
    case $1 in
        weighted | average | same-and-lower | previous) echo "--memory-projections per-layer --memory-composition $1" ;;
        layer[0-9]*) echo "--memory-projections per-layer --memory-composition layer:${1#layer}" ;;
        *) check_architecture "$1" ;;
    esac
}

# check_architecture MODEL: stop unless the name begins like one of the language models'.
check_architecture() {
    case $1 in
        feedback_transformer_lm* | relative_transformer_lm* | all_attention_lm* | streaming_lstm_lm*) ;;
        *) fail "--models $1: unknown; give architectures, such as \"feedback_transformer_lm relative_transformer_lm\"" ;;
    esac
}

# find_nodes: which of how many machines this is. Sets $nodes, $node_rank, $host and $port from the options --nodes,
# --node-rank and --rendezvous, or from Slurm's variables. The first machine, rank 0, goes through all steps; the others
# only take part in the training.
find_nodes() {
    if [ -z "$nodes" ] && [ "${SLURM_STEP_NUM_TASKS:-1}" != 1 ]; then
        [ "$SLURM_STEP_NUM_TASKS" = "${SLURM_STEP_NUM_NODES:-}" ] ||
            fail "srun starts $SLURM_STEP_NUM_TASKS tasks; start one per machine: srun --ntasks-per-node 1"
        nodes=$SLURM_STEP_NUM_NODES node_rank=${node_rank:-${SLURM_NODEID:-}}
        if [ -z "$rendezvous" ]; then
            host=$(scontrol show hostnames "$SLURM_STEP_NODELIST") || fail "scontrol failed; give --rendezvous HOST:PORT"
            rendezvous=${host%%$'\n'*}:$((20000 + SLURM_JOB_ID % 10000))
        fi
    fi
    nodes=${nodes:-1}
    if [ "$nodes" = 1 ]; then
        [ -z "$node_rank$rendezvous" ] || fail "--node-rank, --rendezvous: only with --nodes 2 or more"
        node_rank=0
        return
    fi
    [[ $node_rank =~ ^(0|[1-9][0-9]{0,5})$ && $node_rank -lt $nodes ]] ||
        fail "--node-rank ${node_rank:-is missing}: give this machine's number, from 0 to $((nodes - 1))"
    [[ $rendezvous =~ ^(.+):([1-9][0-9]{0,4})$ && ${BASH_REMATCH[2]} -le 65000 ]] ||
        fail "--rendezvous ${rendezvous:-is missing}: give HOST:PORT, an address of the machine with --node-rank 0"
    host=${BASH_REMATCH[1]} port=${BASH_REMATCH[2]}
    [ "$node_rank" = 0 ] || todo=$(for step in $todo; do case $step in train | finetune) printf "%s " $step ;; esac; done)
}

# count_gpus: set $gpus. With --print, there are none without torch, and scripts that are called do not count again.
count_gpus() {
    local count='import torch; print(torch.cuda.device_count())'
    if [ $printing = no ]; then
        gpus=$(python -c "$count")
        return
    fi
    gpus=${FB_FAIRSEQ_GPUS:-$("${FB_FAIRSEQ_VENV:-$repository/.venv}/bin/python" -c "$count" 2>/dev/null || echo 0)}
    export FB_FAIRSEQ_GPUS=$gpus # for the scripts that are called
}

# find_devices: train with one process per GPU, or with one on the CPU. Sets $processes, the number on all machines, and
# $cpu to fairseq's option.
find_devices() {
    local where="processes, one per GPU"
    count_gpus
    cpu="" processes=$gpus
    if [ "$processes" = 0 ]; then cpu=--cpu processes=1 where="process on the CPU"; fi
    [ "$nodes" = 1 ] || where+=", on each of $nodes machines"
    comment "On this machine, training runs as $processes $where."
    processes=$((processes * nodes))
}

# share_cores: divide the cores between $jobs parallel runs, unless OMP_NUM_THREADS is set.
share_cores() {
    if [ "$jobs" = 1 ] || [ $printing = yes ]; then return; fi
    export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(python -c "import os; print(max(1, os.cpu_count() // $jobs))")}
}

# start_run COMMAND…: run a command in the background, as soon as fewer than $jobs are running. Ctrl-C stops it, too.
start_run() {
    if [ $printing = yes ]; then
        "$@"
        return
    fi
    trap stop_runs INT TERM
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do sleep 1; done
    set -m # a process group of its own, so that all of its processes can be stopped
    "$@" </dev/null &
    set +m
}

# stop_runs: interrupt the runs in the background, wait for them, and exit.
stop_runs() {
    local run
    trap - INT TERM
    for run in $(jobs -rp); do kill -INT -- "-$run" 2>/dev/null || true; done
    wait
    exit 130
}

# start_job NAME COMMAND…: run a command for the run OUT/NAME: now or, with --jobs 2 or more, in the background. There
# its lines begin with its name, and if it fails, OUT/failed names it.
start_job() {
    if [ "$jobs" = 1 ] || [ $printing = yes ]; then "${@:2}"; else start_run run_in_background "$@"; fi
}

run_in_background() {
    local name=$1 line
    (
        trap '[ $? = 0 ] || echo "$name" >>"$out/failed"' EXIT
        "${@:2}"
    ) 2>&1 | (
        trap "" INT # an interrupted command may still say something
        while IFS= read -r line; do printf "[%s] %s\n" "$name" "$line"; done
    )
}

# prepare_jobs: check --jobs, and share the cores.
prepare_jobs() {
    if [ "$jobs" = 1 ] || [ $printing = yes ]; then return; fi
    [ "$processes" = 1 ] || fail "--jobs $jobs: each run uses all GPUs; leave it out"
    share_cores
    rm -f "$out/failed"
}

# wait_for_jobs: wait for what start_job has started, and stop if a run has failed.
wait_for_jobs() {
    if [ "$jobs" = 1 ] || [ $printing = yes ]; then return; fi
    wait_for_runs "$out/failed" "the lines with their names above"
}

# wait_for_runs FAILED LOGS: wait for all runs in the background; stop if the file FAILED names some. LOGS: where to
# look.
wait_for_runs() {
    wait
    [ ! -e "$1" ] || fail "some runs failed: $(paste -sd " " "$1"); see $2. Run the same command again to resume"
}

# run_training RUN UPDATES EVERY DATA OPTIONS…: train with fairseq-train, and validate and save every EVERY updates,
# with $seed, $cpu and the options in extra. Writes the checkpoints to RUN/, the command and its log to RUN.log, the
# seconds that it took to RUN.seconds, and what it ran on to RUN.hardware. Resumes a run that was stopped, and skips one
# that is finished; stops if it was trained with other options, which RUN.setting has.
run_training() {
    local run=$1 target=$2 every=$3 data=$4 never=1000000 started=$SECONDS seconds=0 failed=no problem
    local log=$1.log program=(fairseq-train) interval=$(($2 < 250 ? ($2 + 9) / 10 : 25)) # at least ten points in figures
    shift 4
    # Validation and checkpoints follow the updates only: the length of an epoch depends on the data.
    set -- "$data" --user-dir fb_fairseq "$@" --validate-interval-updates "$every" --save-interval-updates "$every" \
        --validate-interval $never --save-interval $never --no-epoch-checkpoints --seed "$seed" $cpu \
        --log-format json --log-interval $interval ${extra[@]+"${extra[@]}"} --max-update "$target" --save-dir "$run"
    if [ "$nodes" -gt 1 ]; then
        # The first machine may be busy with other steps for hours before it joins. Each training has its own port, as
        # the first machine may still be closing the last one's.
        program=(python -m torch.distributed.run --nnodes "$nodes" --node-rank "$node_rank"
            --nproc-per-node $((processes / nodes)) --master-addr "$host" --master-port "$port"
            --rdzv-conf timeout=86400 -m fairseq_cli.train)
        port=$((port + 1))
        [ -z "$cpu" ] || set -- "$@" --distributed-backend gloo --ddp-backend legacy_ddp
        [ "$node_rank" = 0 ] || log=$run.log.node$node_rank
    fi
    if [ $printing = yes ]; then
        quote "$(relative "$log")"
        show "2>&1 | tee -a $quoted" "${program[@]}" "$@" # progress and the figures are read from the log
        printed_logs+=("$run.log")
        return
    fi
    if [ "$node_rank" = 0 ] && [ "$run" != "${renewed:-}" ]; then
        problem=$(python "$repository/examples/setting.py" "$run" "$out" "${processes:-1}" "$@") || fail "$problem"
    fi
    # (All machines decide the same way: this file is removed only when fine-tuning starts over, see $renewed.)
    if [ "$(cat "$run.done" 2>/dev/null || true)" = "$target" ] && [ "$run" != "${renewed:-}" ]; then
        echo "== $(basename "$run"): already trained for $target updates"
        return
    fi
    echo "== $(basename "$run"): $target updates; log: $log"
    printf '%q ' "${program[@]}" "$@" >>"$log"
    echo >>"$log"
    "${program[@]}" "$@" 2>&1 | python "$repository/examples/progress.py" "$log" "$target" || failed=${PIPESTATUS[0]}
    if [ "$node_rank" = 0 ]; then
        if [ -e "$run.seconds" ]; then seconds=$(cat "$run.seconds"); fi
        echo $((seconds + SECONDS - started)) >"$run.seconds"
        record_hardware "$run"
    fi
    if [ "$failed" = 130 ]; then fail "$(last_error "$log")"; fi # interrupted, and at which update
    [ "$failed" = no ] || fail "training failed: $(last_error "$log"); see $log"
    [ "$node_rank" != 0 ] || echo "$target" >"$run.done"
}

# record_hardware RUN: write what training runs on to RUN.hardware.
record_hardware() {
    python -c "from fb_fairseq.hardware import training_hardware; print(training_hardware())" >"$1.hardware"
}

# last_error LOG: print its last line; with several machines, the last one that names an error, which torchrun's table
# follows.
last_error() {
    if [ "$nodes" -gt 1 ] && grep -aE '(Error|error): ' "$1" | grep -av ChildFailedError | tail -n 1; then return; fi
    tail -n 1 "$1"
}

# parameters_of RUN: print the number of parameters from the training log.
parameters_of() {
    sed -n 's/.*shared model params: \([0-9,]*\).*/\1/p' "$1.log" | tail -n 1 | tr -d ,
}

# collect_results OUT: merge OUT/<model>.json of all models into OUT/results.json.
collect_results() {
    [ $printing = no ] || return 0
    python - "$1" <<'PY'
import glob, json, os, sys
out = sys.argv[1]
files = [f for f in sorted(glob.glob(f"{glob.escape(out)}/*.json")) if os.path.basename(f) != "results.json"]
results = {os.path.basename(f)[:-5]: json.load(open(f)) for f in files}
json.dump(results, open(f"{out}/results.json", "w"), indent=4)
print(f"{out}/results.json")
PY
}

# compare OUT: print the results beside the papers', with means and spreads over seeds.
compare() {
    comment "compare with the papers' tables"
    if [ $printing = yes ]; then
        show "" python -m fb_fairseq compare "$1"
        return
    fi
    python -m fb_fairseq compare "$1"
}

# draw_against_layers OUT METRIC…: draw the metrics of OUT/results.json against the number of layers, to OUT/layers.png.
draw_against_layers() {
    comment "draw the results against the number of layers"
    run python examples/layers.py "$@"
}

# draw_curves OUT METRIC STAGE…: draw the learning curves of all OUT/<model>.log, with their fine-tuning, to
# OUT/curves.png. They continue those of the STAGE/<model>.log of a curriculum.
draw_curves() {
    local log name stage curves=() logs=("$1"/*.log)
    [ $printing = no ] || logs=(${printed_logs[@]+"${printed_logs[@]}"})
    for log in ${logs[@]+"${logs[@]}"}; do
        case $log in *-finetuned.log | *"*.log" | "$1"/*/*) continue ;; esac
        name=$(basename "$log" .log)
        for stage in "${@:3}"; do
            if [ $printing = yes ] || [ -e "$stage/$name.log" ]; then curves+=("$name=$stage/$name.log"); fi
        done
        curves+=("$name=$log")
        log=${log%.log}-finetuned.log
        case " ${logs[*]} " in *" $log "*) curves+=("$name=$log") ;; esac
    done
    [ ${#curves[@]} != 0 ] || return 0
    comment "draw the learning curves"
    run python -m fb_fairseq plot --curves "${curves[@]}" --metric "$2" --out "$1/curves.png"
}

# preprocess FOLDER TRAIN VALID TEST DESTDIR OPTIONS…: binarise text in words, the files TRAIN, … in FOLDER, with
# fairseq-preprocess, which splits names at commas: FOLDER's may have some.
preprocess() {
    local folder=$1/ destdir=$5
    case $folder in *,*) run cd "$1"; folder="" printed_in=$1 ;; esac
    logged preprocessing "$out/preprocess.out" fairseq-preprocess --trainpref "$folder$2" --validpref "$folder$3" \
        --testpref "$folder$4" --destdir "$destdir" --workers 1 "${@:6}"
    [ -n "$folder" ] || run cd "$repository"
    printed_in=$repository
}

# unpack FILE OUT [MEMBER]: copy a plain file, unpack a .gz, or extract MEMBER (or the only file) from a .zip.
unpack() {
    if [ $printing = yes ]; then
        quote "$(relative "$2")"
        case $1 in
            *.gz) show ">$quoted" gzip -dc "$1" ;;
            *.zip) show ">$quoted" unzip -p "$1" "${3:-}" ;;
            *) show "" cp "$1" "$2" ;;
        esac
        printed_files+="|$2|"
        return
    fi
    [ -f "$1" ] || fail "$1: no such file"
    case $1 in
        *.gz) gzip -dc "$1" >"$2" || fail "$1: cannot be unpacked; use an intact copy" ;;
        *.zip)
            python - "$@" <<'PY' 2>/dev/null || fail "$1: cannot be unpacked; use an intact copy with ${3:-one file}"
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

# check_text FILE: stop unless the file, plain or .gz, is text in UTF-8.
check_text() {
    [ $printing = no ] || return 0
    [ -f "$1" ] || fail "$1: no such file"
    python - "$1" 2>/dev/null <<'PY' || fail "$1: not UTF-8 text, or damaged; convert it (iconv) or use an intact copy"
import gzip, sys
with (gzip.open if sys.argv[1].endswith(".gz") else open)(sys.argv[1], "rt", encoding="utf-8") as file:
    for line in file:
        pass
PY
}

# check_file FILE BYTES MD5 NAME: stop unless the file is the published one. BYTES may be empty.
check_file() {
    local found
    [ $printing = no ] || return 0
    found=$(python -c "import hashlib, os, sys
digest = hashlib.md5()
with open(sys.argv[1], 'rb') as file:
    for chunk in iter(lambda: file.read(1 << 20), b''):
        digest.update(chunk)
print(os.path.getsize(sys.argv[1]), digest.hexdigest())" "$1")
    [ "$found" = "$2 $3" ] || [ "${found#* }:$2" = "$3:" ] ||
        fail "$1: ${found% *} bytes, md5 ${found#* }; $4 has ${2:+$2 bytes, }md5 $3. Use an intact copy," \
            "or --small DATA for any other text"
}
