# Sourced by the recipes after environment.sh: what their steps have in common. $todo are the steps asked for.

asked() {
    case " $todo " in *" $1 "*) true ;; *) false ;; esac
}

have() {
    [ -e "$1" ] || fail "$1: not there; run the step $2 first"
}

# numbers OPTION VALUES: stop unless they are whole numbers from 1 on.
numbers() {
    local value
    for value in $2; do
        case $value in *[!0-9]* | 0*) fail "$1 $value: give a number, 1 or more" ;; esac
    done
}

# parse_options NAMES NUMBERS ARGUMENTS…: sets $small, $input (DATA), the array extra (what follows --), and a variable
# for each option: own_updates for --updates, $todo for --steps.
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
                case " $numeric " in *" $option "*) numbers "$1" "$2" ;; esac
                case $option in
                    steps) option=todo ;;
                    updates | finetune-updates) option=own_${option//-/_} ;;
                esac
                printf -v "${option//-/_}" %s "$2" # (declare -g is not in the bash of macOS)
                shift 2
                ;;
            -*) fail "$1: unknown option; $usage" ;;
            *) [ -z "$input" ] || fail "$1: one DATA only; $usage"; input=$1; shift ;;
        esac
    done
}

# absolute PATH: the same file, from any folder.
absolute() {
    if [ -e "$1" ]; then echo "$(cd "$(dirname "$1")" && pwd)/$(basename "$1")"; else echo "$1"; fi
}

# composition MODEL: the options of a Feedback Transformer whose memory is so composed (v1 Table 5, v3 Figures 5 and 8);
# nothing where MODEL is none of these but an architecture.
composition() {
    case $1 in
        weighted | average | same-and-lower | previous) echo "--memory-projections per-layer --memory-composition $1" ;;
        layer[0-9]*) echo "--memory-projections per-layer --memory-composition layer:${1#layer}" ;;
    esac
}

# share_cores: threads of each of $jobs runs at a time.
share_cores() {
    [ "$jobs" -gt 1 ] || return 0
    export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(python -c "import os; print(max(1, os.cpu_count() // $jobs))")}
}

# wait_for_place: until fewer than $jobs runs go on in the background.
wait_for_place() {
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do sleep 1; done
}

# run_training RUN UPDATES OPTIONS…: fairseq-train to RUN/, its command and log in RUN.log, its time in RUN.seconds. Goes
# on where an earlier run stopped; does nothing where it was done.
run_training() {
    local run=$1 target=$2 started=$SECONDS seconds=0 failed=no
    shift 2
    if [ "$(cat "$run.done" 2>/dev/null || true)" = "$target" ]; then
        echo "== $(basename "$run"): trained already, $target updates"
        return
    fi
    echo "== $(basename "$run"): $target updates"
    set -- "$@" --max-update "$target" --save-dir "$run"
    echo "fairseq-train $*" >>"$run.log"
    fairseq-train "$@" >>"$run.log" 2>&1 || failed=yes
    if [ -e "$run.seconds" ]; then seconds=$(cat "$run.seconds"); fi
    echo $((seconds + SECONDS - started)) >"$run.seconds"
    [ $failed = no ] || fail "training stopped: $(tail -n 1 "$run.log"); $run.log says more"
    echo "$target" >"$run.done"
}

# collect_results OUT: all OUT/<model>.json in OUT/results.json.
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

# draw_curves OUT METRIC: of all OUT/<model>.log, to OUT/curves.png.
draw_curves() {
    local log curves=()
    for log in "$1"/*.log; do
        case $log in *-finetuned.log | *"*.log") ;; *) curves+=("$(basename "$log" .log)=$log") ;; esac
    done
    [ ${#curves[@]} = 0 ] || python -m fb_fairseq plot --curves "${curves[@]}" --metric "$2" --out "$1/curves.png"
}

# unpack FILE OUT [MEMBER]: FILE as it is, or out of .gz, or MEMBER (or the only file) of .zip.
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
