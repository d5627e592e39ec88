#!/usr/bin/env bash
# docs/coverage.md: runs its preparation, then its commands row by row, and looks for what the page promises.
set -euo pipefail
# shellcheck source=tests/dist/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../dist/lib.sh"
# shellcheck source=tests/scripts/page.sh
source "$source_dir/tests/scripts/page.sh"

page=$source_dir/docs/coverage.md
export PATH="${CAIRN_BINARY%/*}:$PATH" src=$source_dir CAIRN_THREADS=1
needs_modules

try_page "$page"
[ "$failures" -eq 0 ] || finish

# The rows, each "1. State, kind: what is expected `command` shows list Missing: what".
declare -A count=()
rows=0 ran=0 suite_rows=0 skipped=0
# shellcheck disable=SC2016 # Markdown's code
row='^([0-9]+)\. ([A-Za-z]+)(, ([A-Za-z]+))?: [^`]*(`([^`]*)`)?(.*)$'
while IFS= read -r line; do
    [[ $line =~ $row ]] || { complain "not a row: $line" && continue; }
    number=${BASH_REMATCH[1]} kind=${BASH_REMATCH[2]} suite_kind=${BASH_REMATCH[4]} command=${BASH_REMATCH[6]} rest=${BASH_REMATCH[7]}
    where="row $number" shows=${rest%%Missing:*} missing=
    [[ $rest != *Missing:* ]] || missing=${rest#*Missing:}
    rows=$((rows + 1))
    [ "$number" -eq "$rows" ] || complain "row $number follows row $((rows - 1))"
    group=$((number > 44)) && count[$kind$group]=$((${count[$kind$group]:-0} + 1))
    case $kind in
    Works | GPU) [ -z "$missing" ] || complain "$where: $kind, and something is missing" ;;
    Partly) [ -n "$missing" ] || complain "$where does not say what is missing" ;;
    Missing) [ -z "$command" ] || complain "$where: missing, and has a command" ;;
    *) complain "$where: state $kind" ;;
    esac
    case $kind,$suite_kind in
    Missing,) ;;
    GPU,) skipped=$((skipped + 1)) && echo "skipped: $where needs a GPU: $command" ;;
    *,?*) # a test of the suite, which runs it itself
        name=${command##* }
        compgen -G "$source_dir/tests/${name%/*}/test_${name#*/}.*" >/dev/null ||
            [ -e "$source_dir/tests/$name.c" ] || complain "$where: there is no test $name"
        suite_rows=$((suite_rows + 1)) && echo "run by the suite: $where: $name"
        ;;
    *)
        try "$command"
        [[ $shows == *\`* ]] || complain "$where names nothing to look for"
        look_for "$shows"
        ran=$((ran + 1))
        ;;
    esac
done < <(awk '/^[0-9]+\. / { if (row) print row; row = $0; next }
    row && /^   / { sub(/^ +/, ""); row = row " " $0; next }
    row { print row; row = "" }
    END { if (row) print row }' "$page")
echo "$rows rows: $ran run here, $suite_rows by the suite, $skipped need a GPU"

states() { # states GROUP
    echo "${count[Works$1]:-0} work, ${count[Partly$1]:-0} partly, ${count[GPU$1]:-0} wait for a GPU, missing: ${count[Missing$1]:-0}."
}
said="The first list has 44 rows: $(states 0) The second has $((rows - 44)): $(states 1)"
grep -qF "$said" <<<"$(tr '\n' ' ' <"$page")" || complain "the page does not say: $said"

finish
