# Sourced by quickstart.sh and the recipes: the steps that they share, from the data to the results.

. "$(dirname -- "${BASH_SOURCE[0]}")/jobs.sh"

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

# run_training RUN UPDATES EVERY DATA OPTIONS…: train with fairseq-train, and validate and save every EVERY updates,
# with $seed, $cpu and the options in extra. Writes the checkpoints to RUN/, the command and its log to RUN.log, the
# seconds that it took to RUN.seconds, and what it ran on to RUN.hardware. Resumes a run that was stopped, and skips one
# that is finished; stops if it was trained with other options, which RUN.setting has.
run_training() {
    local run=$1 target=$2 every=$3 data=$4 never=1000000 failed=no problem seconds=""
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
    if [ "$node_rank" = 0 ]; then
        record_hardware "$run"
        seconds=$run.seconds
    fi
    "${program[@]}" "$@" 2>&1 | python "$repository/examples/progress.py" "$log" "$target" "$seconds" ||
        failed=${PIPESTATUS[0]}
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

# has_logged LOG METRIC: whether the metric is in the log; a run that has only begun has logged nothing yet.
has_logged() {
    [ $printing = yes ] || grep -aqs "[\"_]$2\": " "$1"
}

# draw_curves OUT METRIC STAGE…: draw the learning curves of all OUT/<model>.log, with their fine-tuning, to
# OUT/curves.png. They continue those of the STAGE/<model>.log of a curriculum.
draw_curves() {
    local log name stage curves=() logs=("$1"/*.log)
    [ $printing = no ] || logs=(${printed_logs[@]+"${printed_logs[@]}"})
    for log in ${logs[@]+"${logs[@]}"}; do
        case $log in *-finetuned.log | "$1"/*/*) continue ;; esac
        has_logged "$log" "$2" || continue
        name=$(basename "$log" .log)
        for stage in "${@:3}"; do
            if has_logged "$stage/$name.log" "$2"; then curves+=("$name=$stage/$name.log"); fi
        done
        curves+=("$name=$log")
        log=${log%.log}-finetuned.log
        case " ${logs[*]} " in *" $log "*) if has_logged "$log" "$2"; then curves+=("$name=$log"); fi ;; esac
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
