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

# absolute PATH: the same file, from any folder.
absolute() {
    if [ -e "$1" ]; then echo "$(cd "$(dirname "$1")" && pwd)/$(basename "$1")"; else echo "$1"; fi
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
