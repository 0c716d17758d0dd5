# Sourced by options.sh: the functions through which the recipes run commands, or print them (--print).

. "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"

printing=no         # yes with --print: the commands are printed, and nothing is run or written
printed_in=$repository # the folder in which the printed commands run
printed_files=""    # the files that the printed commands write, each between two |
printed_logs=()     # the logs of the trainings that were printed

# start: create the environment and the folder $out, and go to the repository; with --print, print how to do so.
start() {
    if [ $printing = yes ]; then print_header; else make_environment; make_out; fi
    cd "$repository"
}

# print_header: print what comes before the recipe's own commands, and use the environment if there is one.
print_header() {
    local venv=${FB_FAIRSEQ_VENV:-$repository/.venv} script
    absolute venv
    export FB_FAIRSEQ_VENV=$venv
    absolute out
    if [ -z "${FB_FAIRSEQ_PRINTED:-}" ]; then
        script=$(cd "$(dirname -- "$0")" && pwd)/${0##*/}
        echo "# What ${script#"$repository/"} runs,"
        echo "# without its checks of the data, and without collecting the results in results.json."
        show "" cd "$repository"
        quote "$(relative "$venv/bin")"
        case $quoted in /* | "'/"*) ;; *) quoted="\"\$PWD\"/"$quoted ;; esac
        echo "export PATH=$quoted:\"\$PATH\" PYTHONPATH=\"\$PWD\""
        [ -x "$venv/bin/python" ] ||
            echo "# (This environment does not exist yet. Without --print, the script creates it.)"
    fi
    export FB_FAIRSEQ_PRINTED=yes # scripts that are called print no header
    show "" mkdir -p "$out"
    [ ! -x "$venv/bin/python" ] || export PATH="$venv/bin:$PATH"
}

# comment WHAT: with --print, say in a comment what the next commands do. (A remark) gets no blank line.
comment() {
    [ $printing = yes ] || return 0
    case $1 in "("*) ;; *) echo ;; esac
    echo "# $1"
}

# quote WORD: set $quoted to the word as a person types it in a shell.
quote() {
    local rest=$1 mark="'"
    quoted=$rest
    case $rest in
        "" | *[!A-Za-z0-9_./:=,@%+-]*)
            quoted=$mark
            while [[ $rest == *"$mark"* ]]; do
                quoted+="${rest%%"$mark"*}'\\''"
                rest=${rest#*"$mark"}
            done
            quoted+=$rest$mark
            ;;
    esac
}

# relative WORD: print a path, or NAME=PATH, relative to $printed_in if it lies in it.
relative() {
    local name="" path=$1
    case $path in *"=$printed_in/"*) name=${path%%=*}= path=${path#*=} ;; esac
    case $path in
        "$printed_in/"-*) path=./${path#"$printed_in/"} ;;
        "$printed_in/"?*) path=${path#"$printed_in/"} ;;
    esac
    printf %s "$name$path"
}

# show REDIRECTION COMMAND…: print a command as a person types it, with the redirection, which is shell code, at its
# end. Lines are broken before options, so that they have at most 120 characters where possible.
show() {
    local redirection=$1 word part="" line="" parts=()
    shift
    for word in "$@"; do
        case $word in *"$printed_in/"*) word=$(relative "$word") ;; esac
        quote "$word"
        if [ -z "$part" ] || [[ $word == -[!0-9]* ]] || [ $((${#part} + ${#quoted})) -gt 113 ]; then
            [ -z "$part" ] || parts+=("$part")
            part=$quoted
        else
            part+=" $quoted"
        fi
    done
    parts+=("$part")
    [ -z "$redirection" ] || parts+=("$redirection")
    for part in "${parts[@]}"; do
        if [ -z "$line" ]; then
            line=$part
        elif [ $((${#line} + ${#part})) -gt 117 ]; then
            printf '%s \\\n' "$line"
            line="    $part"
        else
            line+=" $part"
        fi
    done
    printf '%s\n' "$line"
}

# run COMMAND…: run a command, or print it.
run() {
    if [ $printing = yes ]; then show "" "$@"; else "$@"; fi
}

# logged WHAT LOG COMMAND…: run a command with its output in LOG; if it fails, stop with the log's last line.
logged() {
    local what=$1 log=$2
    shift 2
    if [ $printing = yes ]; then
        show "" "$@"
        return
    fi
    "$@" >"$log" 2>&1 || fail "$what failed: $(tail -n 1 "$log"); see $log"
}

# filtered WHAT LOG IN OUT COMMAND…: run a command that reads IN, unless this is empty, and writes OUT, which appears
# only at the end; if it fails, stop with the last line of LOG, its errors.
filtered() {
    local what=$1 log=$2 in=$3 out_file=$4 redirection=""
    shift 4
    if [ $printing = yes ]; then
        if [ -n "$in" ]; then
            quote "$(relative "$in")"
            redirection="<$quoted "
        fi
        quote "$(relative "$out_file")"
        show "$redirection>$quoted" "$@"
        printed_files+="|$out_file|"
        return
    fi
    "$@" <"${in:-/dev/null}" >"$out_file.tmp" 2>"$log" || fail "$what failed: $(tail -n 1 "$log"); see $log"
    mv "$out_file.tmp" "$out_file"
}

# given FILE: whether the file exists; with --print it need not.
given() {
    [ $printing = yes ] || [ -f "$1" ]
}

# there FILE: whether the file exists, or a printed command writes it.
there() {
    [ -e "$1" ] || [[ $printed_files == *"|$1|"* ]]
}
