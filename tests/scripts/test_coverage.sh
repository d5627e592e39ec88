#!/usr/bin/env bash
# docs/coverage.md: runs its commands, row by row and user by user, and looks for what the page promises.
set -euo pipefail
# shellcheck source=tests/dist/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../dist/lib.sh"

page=$source_dir/docs/coverage.md
export PATH="${CAIRN_BINARY%/*}:$PATH" src=$source_dir CAIRN_THREADS=1
"$CAIRN_BINARY" doctor >doctor
for needed in 'gloo  *loads' 'HDF5  *yes'; do
    grep -q "^$needed" doctor || { echo "skipped: a command of the page needs ${needed%% *}" && exit 77; }
done

# try COMMAND: runs it in this shell, so that the next ones have its variables.
try() {
    local code=0
    command=$1 output=
    eval "$command" >"$work/.stdout" 2>"$work/.stderr" </dev/null || code=$?
    output=$(cat "$work/.stdout" "$work/.stderr")
    if grep -q 'built without expat' "$work/.stderr"; then echo "skipped: built without expat" && exit 77; fi
    [ "$code" -eq 0 ] || { complain "$where: exit code $code of: $command" && tail -n 20 <<<"$output"; }
}

# look_for LIST: `a text of the output`, file `a path`, …
look_for() {
    local rest=$1
    while [[ $rest =~ (file )?\`([^\`]*)\` ]]; do
        rest=${rest#*"${BASH_REMATCH[0]}"}
        if [ -n "${BASH_REMATCH[1]}" ]; then
            [ -s "${BASH_REMATCH[2]}" ] || complain "$where: no file ${BASH_REMATCH[2]} after: $command"
        else
            grep -qF -- "${BASH_REMATCH[2]}" <<<"$output" ||
                { complain "$where: '${BASH_REMATCH[2]}' is not in the output of: $command" && tail -n 20 <<<"$output"; }
        fi
    done
}

# try_block TITLE: the lines of the first block of commands behind the heading that begins with TITLE.
try_block() {
    local line lines
    where=$1 lines=0
    while IFS= read -r line; do
        if [[ $line == '# shows '* ]]; then look_for "$line"; else try "$line"; fi
        lines=$((lines + 1))
    done < <(awk -v title="$1" '/^#/ && !within { here = (index($0, title) > 0) } /^```/ { if (within) exit; within = here && $0 == "```sh"; next }
        within' "$page")
    [ "$lines" -gt 0 ] || complain "$page has no commands under $1"
}

try_block Preparation
[ "$failures" -eq 0 ] || finish

# The rows.
declare -A count=()
rows=0 ran=0 suite=0 skipped=0
while IFS='|' read -r _ number _ state command shows missing _; do
    read -r number <<<"$number"
    state=${state//[[:space:]]/} missing=${missing//[[:space:]]/} where="row $number" kind=${state%%,*}
    command=${command#*\`} command=${command%\`*}
    rows=$((rows + 1))
    [ "$number" -eq "$rows" ] || complain "row $number follows row $((rows - 1))"
    group=$((number > 44)) && count[$kind$group]=$((${count[$kind$group]:-0} + 1))
    case $kind in works) ;; partly | missing) [ -n "$missing" ] || complain "$where does not say what is missing" ;; GPU) ;; *) complain "$where: state $state" ;; esac
    case $state in
    missing) [ -z "${command// /}" ] || complain "$where: missing, and has a command" ;;
    GPU) skipped=$((skipped + 1)) && echo "skipped: $where needs a GPU: $command" ;;
    *,*) # a test of the suite, which runs it itself
        name=${command##* }
        compgen -G "$source_dir/tests/${name%/*}/test_${name#*/}.*" >/dev/null ||
            [ -e "$source_dir/tests/$name.c" ] || complain "$where: there is no test $name"
        suite=$((suite + 1)) && echo "run by the suite: $where: $name"
        ;;
    *)
        try "$command"
        [[ $shows == *\`* ]] || complain "$where names nothing to look for"
        look_for "$shows"
        ran=$((ran + 1))
        ;;
    esac
done < <(grep -E '^\| [0-9]+ \|' "$page")
echo "$rows rows: $ran run here, $suite by the suite, $skipped need a GPU"

states() { # states GROUP
    echo "${count[works$1]:-0} work, ${count[partly$1]:-0} partly, ${count[GPU$1]:-0} wait for a GPU, missing: ${count[missing$1]:-0}."
}
said="The first table has 44 rows: $(states 0) The second has $((rows - 44)): $(states 1)"
grep -qF "$said" <<<"$(tr '\n' ' ' <"$page")" || complain "the page does not say: $said"

for user in "A student cluster team" "A benchmarker" "A lab"; do try_block "$user"; done
finish
