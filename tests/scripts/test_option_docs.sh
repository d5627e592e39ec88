#!/usr/bin/env bash
# Man pages, completions and the schema that the build writes: each has the flags of --help-all, and each shell accepts its file.
set -euo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

docs=${CAIRN_TEST_BUILD_DIR:-$source_dir/build}/docs
mapfile -t commands < <("$CAIRN_BINARY" --help | sed -n '/^Examples/q;s/^  \([a-z][a-z]*\) .*/\1/p')
[ ${#commands[@]} -gt 10 ] || complain "--help lists ${#commands[@]} commands"

# flags_of_help COMMAND
flags_of_help() { "$CAIRN_BINARY" "$1" --help-all | sed -n 's/^  \(--[a-z0-9-]*\).*/\1/p' | sort; }
# same_flags WHAT COMMAND: standard input has the flags of --help-all.
same_flags() {
    diff <(flags_of_help "$2") <(sort) >"$work/diff" || complain "$1 of $2 differs from --help-all: $(cat "$work/diff")"
}

# complete_words WORD...: bash's offers for the last of these words.
complete_words() (
    # shellcheck disable=SC1091 # made by the build
    source "$docs/cairn.bash"
    COMP_WORDS=(cairn "$@") COMP_CWORD=$#
    _cairn
    [ ${#COMPREPLY[@]} -eq 0 ] || printf '%s\n' "${COMPREPLY[@]}"
)

for shown in CAIRN_SSH CAIRN_JOB_TOKEN; do
    grep -qxF "\\fB$shown\\fR" "$docs/cairn.1" || complain "the man page lacks $shown"
done
if grep -q 'CAIRN_CUDA_\|CAIRN_TEST_' "$docs/cairn.1"; then complain "the man page has developers' variables"; fi

for command in "${commands[@]}"; do
    sed -n '/^\.TP/{n;s/^\\fB\(\\-\\-[a-z0-9\\-]*\)\\fR.*/\1/p}' "$docs/cairn-$command.1" | tr -d '\\' |
        same_flags "the man page" "$command"
    sed -n '/^\.SH EXAMPLES/,/^\.fi/p' "$docs/cairn-$command.1" | grep -q "cairn $command " ||
        complain "the man page of $command has no example"
    complete_words "$command" -- | grep -vxF -e --help -e --help-all | same_flags "bash's completion" "$command"
    complete_words launch -- "$command" --s | grep -qvE '^--s' && complain "bash offers more than --s… of $command"
    sed -n "s/.*seen_subcommand_from $command' -l \([a-z0-9-]*\).*/--\1/p" "$docs/cairn.fish" |
        same_flags "fish's completion" "$command"
    sed -n "/^    $command)/,/;;/s/^        '\(--[a-z0-9-]*\).*/\1/p" "$docs/_cairn" | grep -vxF -e --help -e --help-all |
        same_flags "zsh's completion" "$command"
    "$CAIRN_BINARY" "$command" --print-config | sed -n 's/^  "\([a-z0-9-]*\)".*/\1/p' >keys
    while read -r key; do
        grep -qF "\"$key\": {" "$docs/config.schema.json" || complain "the schema does not know $key of $command"
    done <keys
done
[ "$(complete_words "" | sort | tr '\n' ' ')" = "$(printf '%s\n' --help --version "${commands[@]}" | sort | tr '\n' ' ')" ] ||
    complain "bash offers other commands than --help"
[ "$(complete_words glue --optimizer n)" = nvlamb ] || complain "bash does not offer the words of a choice"
mkdir one_folder
[ "$(complete_words glue --output-dir one)" = one_folder ] || complain "bash does not offer folders"

# Programs that read these formats, where they are installed.
if command -v zsh >/dev/null; then zsh -n "$docs/_cairn" || complain "zsh cannot read its completion"; fi
if command -v fish >/dev/null; then fish -n "$docs/cairn.fish" || complain "fish cannot read its completion"; fi
if command -v groff >/dev/null; then
    for page in "$docs"/*.1; do
        [ -z "$(groff -man -ww -Wbreak -z -Tutf8 "$page" 2>&1)" ] || complain "groff warns about $page: $(groff -man -ww -Wbreak -z -Tutf8 "$page" 2>&1 | head -n 3)"
    done
fi
"$CAIRN_BINARY" glue --config "$docs/config.schema.json" >/dev/null 2>&1 && complain "a schema was taken for a configuration"
finish
