# Sourced by jobs.sh: reading the command lines of the recipes, and checking their values.

. "$(dirname -- "${BASH_SOURCE[0]}")/printing.sh"

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

# check_rate OPTION VALUE: stop unless the value is a decimal number above 0.
check_rate() {
    [[ $2 =~ ^[0-9]*\.?[0-9]+(e-?[0-9]+)?$ && $2 =~ ^[0.]*[1-9] ]] || fail "$1 $2: give a number above 0, such as 0.002"
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
            lr:*) check_rate "$1" "$2" ;;
            *:*" $option+ "*) check_numbers "$1" "$2" ;;
            *:*" $option "*) check_number "$1" "$2" ;;
            *) check_words "$1" "$2" ;;
        esac
        case $option in
            steps) option=todo ;;
            updates | finetune-updates | valid-streams | test-streams | lr) option=own_$option ;;
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
