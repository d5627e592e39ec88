#!/usr/bin/env bash
# What the tree may hold: no large files, no paths of somebody's machine, nothing left to do, scripts that can be run and
# are free of shellcheck's complaints, source files of a length that can be read in one sitting.
set -euo pipefail
# shellcheck source=tests/rules/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh" "$@"

if [ $# -eq 0 ]; then
    bad_tree a.c "$(printf 'int x;\n%.0s' {1..601})"$'\n' b.md $'see /work/x\nTODO: this\nblank \n' \
        c.sh $'#!/bin/sh\necho $1\n' big.bin "$(printf '%01500001d' 0)"
    mkdir "$bad/bin"
    printf '#!/bin/sh\nkill -9 $$\n' >"$bad/bin/shellcheck"
    chmod +x "$bad/bin/shellcheck"
    PATH=$bad/bin:$PATH finds 'shellcheck ended with 137' 'a.c:601: 601 lines' 'b.md:1:' 'b.md:2:' 'b.md:3:' 'c.sh:1: a script' 'big.bin: 1500001 bytes'
fi

most_bytes=1500000
most_lines=600
# Neither generated files nor this one count for words.
texts() { project_files | grep -Ev '^(tests/rules/test_tree\.sh|LICENSE|tests/fuzz/corpus/)'; }
search() { texts | tr '\n' '\0' | xargs -0 grep -nIE "$1" /dev/null; }

# over MOST UNIT: of lines "NUMBER FILE" those above MOST, as findings
over() {
    awk -v most="$1" -v unit="$2" '
        $1 > most && $2 != "total" {
            n = $1
            sub(/^ *[0-9]+ /, "")
            print $0 (unit == "lines" ? ":" n ": " : ": ") n " " unit "; at most " most
        }' >>"$findings"
}
project_files | tr '\n' '\0' | xargs -0r stat --printf '%s %n\n' | over "$most_bytes" bytes
project_files | grep -E '\.(c|h|cc|cu)$' | tr '\n' '\0' | xargs -0r wc -l | over "$most_lines" lines
while IFS= read -r file; do
    # Files that are sourced have no first line with a shell.
    if head -n 1 "$file" | grep -q '^#!' && [ ! -x "$file" ]; then found "$file:1: a script, but not executable"; fi
done < <(project_files | grep -E '\.sh$|^\.ci/' || true)

# "/home/me" is what examples are called.
search '(^|[^A-Za-z0-9._-])/(work|root|Users|home)/' | grep -v '/home/me/' | sed 's/$/  (a path of one machine)/' >>"$findings" || true
search '\b(TODO|FIXME|XXX|HACK)\b' | sed 's/$/  (left to do)/' >>"$findings" || true
texts | grep -E '\.(c|h|sh|cmake|md|txt)$' | tr '\n' '\0' | xargs -0 grep -nIE '[[:blank:]]+$' /dev/null |
    grep -v '^tests/golden/' | sed 's/$/  (blanks at the end)/' >>"$findings" || true

if command -v shellcheck >/dev/null; then
    mapfile -t scripts < <(project_files | grep -E '\.sh$|^\.ci/')
    # Each on its own takes a third of the time; what others set or use is then unknown.
    flags=(-e "SC2034,SC2154")
    [ -z "${CAIRN_TEST_DEEP:-}" ] || flags=(-x)
    for script in "${scripts[@]}"; do
        code=0
        shellcheck "${flags[@]}" -S warning -f gcc "$script" >>"$findings" || code=$?
        [ "$code" -le 1 ] || found "shellcheck ended with $code" # 1: it found something
    done
fi
conclude "findings"
