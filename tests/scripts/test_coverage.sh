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
finish
