#!/usr/bin/env bash
# C and C++ sources are formatted as .clang-format says.
set -euo pipefail
# shellcheck source=tests/rules/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh" "$@"

command -v clang-format >/dev/null || { echo "skipped: clang-format is not installed" && exit 77; }
# Versions differ in details; the sources follow Debian 12's.
version=$(clang-format --version | sed -n 's/.*version \([0-9]*\).*/\1/p')
[ "$version" -eq 14 ] || { echo "skipped: the sources are formatted by clang-format 14, this is $version" && exit 77; }

if [ $# -eq 0 ]; then
    bad_tree .clang-format "$(cat .clang-format)" src/good.c $'int x;\n' src/bad.c $'int  y;\n'
    cp .clang-format "$bad/"
    finds src/bad.c:1 '1 places'
fi

# Made by a program, which formats as it likes.
generated='^src/text/unicode_tables\.c$'
project_files | grep -E '\.(c|h|cc|cu|cuh)$' | grep -Ev "$generated" | tr '\n' '\0' |
    xargs -0 clang-format --dry-run 2>&1 | grep -E '^[^ ].*: (warning|error):' >>"$findings" || true
conclude "places are not formatted; clang-format -i mends them"
