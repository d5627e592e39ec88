# What the rules share. Each rule lists what breaks it as file:line and ends with the number of findings. A rule looks at
# this project, or at the tree that is its first argument: so each first shows on a small tree that it finds what it
# should.
# shellcheck shell=bash

project=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
cd -- "${1:-$project}" || exit 1
findings=$(mktemp)
trap 'rm -f -- "$findings"' EXIT

# Files of the project, one per line: what git has or would take, or, in an unpacked archive, what is not built.
project_files() {
    if [ -e .git ] && command -v git >/dev/null && git rev-parse --git-dir >/dev/null 2>&1; then
        git ls-files --cached --others --exclude-standard | while IFS= read -r file; do
            if [ -e "$file" ]; then printf '%s\n' "$file"; fi
        done
    else
        find . -type f -not -path './build*' -not -path './results/*' -not -path './.git/*' | sed 's#^\./##'
    fi
}

found() { printf '%s\n' "$*" >>"$findings"; }

# bad_tree FILE TEXT...: these files in a new folder, $bad, which goes at the end.
bad_tree() {
    bad=$(mktemp -d)
    trap 'rm -rf -- "$findings" "$bad"' EXIT
    while [ $# -gt 0 ]; do
        mkdir -p -- "$(dirname -- "$bad/$1")"
        printf '%s' "$2" >"$bad/$1"
        shift 2
    done
}

# finds TEXT...: the rule $0, looking at $bad, must fail and say each of these.
finds() {
    local said text
    if said=$(bash "$0" "$bad"); then found "the rule finds nothing where there is something"; fi
    for text in "$@"; do
        grep -qF -- "$text" <<<"$said" || found "the rule does not find '$text'; it says: $said"
    done
}

# Ends the rule. $1: what the findings are.
conclude() {
    [ -s "$findings" ] || exit 0
    cat "$findings"
    printf '%d %s\n' "$(wc -l <"$findings")" "$1"
    exit 1
}
