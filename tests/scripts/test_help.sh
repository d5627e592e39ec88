#!/usr/bin/env bash
# --help of every script and command needs nothing; each example in it is a command line that parses.
set -euo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

# Scripts install, build and search nothing; even a wrong CAIRN_BINARY does not matter.
for name in quickstart test run_glue run_pretraining eval sweep; do
    for flag in --help -h; do
        expect 0 env CAIRN_BINARY=/nowhere "$scripts/$name.sh" "$flag"
        says "$name.sh" "Exit codes"
        [ ! -s "$work/.stderr" ] || complain "$name.sh $flag writes to stderr"
    done
done
expect 0 env CAIRN_BINARY=/nowhere "$scripts/run_glue.sh" --task MNLI --help
expect 0 "$source_dir/tests/fuzz/run.sh" --help
says run.sh

expect 0 "$CAIRN_BINARY" --help
says "Prepare data and models" "Train and evaluate" "Plan and compare" "Many machines" Examples
cp "$work/.stdout" whole
expect 2 "$CAIRN_BINARY"
if [ -s "$work/.stdout" ]; then complain "cairn alone writes to the standard output"; fi
cmp -s "$work/.stderr" whole || complain "cairn alone does not print --help"
mapfile -t commands < <(sed -n '/^Examples/q;s/^  \([a-z][a-z]*\) .*/\1/p' whole)
[ ${#commands[@]} -gt 10 ] || complain "--help lists ${#commands[@]} commands"
expect 0 "$CAIRN_BINARY" --version
grep -qE '^cairn [0-9]+\.[0-9]+\.[0-9]+$' "$work/.stdout" || complain "--version says '$output'"

if "$CAIRN_BINARY" --help >/dev/full 2>full; then complain "a full standard output is not an error"; fi
grep -q 'cannot write to the standard output: No space' full || complain "message of a full standard output: $(cat full)"

# parses WORD...: the words of an example are a command line. What follows a -- is one of its own.
parses() {
    local n
    [ "$1" = cairn ] || { complain "an example begins with '$1'" && return; }
    for ((n = 2; n < $#; n++)); do
        [ "${!n}" != -- ] || { parses cairn "${@:n+1}" && break; }
    done
    expect 0 "$CAIRN_BINARY" "$2" --print-config "${@:3}"
    says '"verbose": '
}

# examples COMMAND: those of its --help (empty: of `cairn --help`), one a line.
examples() {
    "$CAIRN_BINARY" ${1:+"$1"} --help | sed -n '/^Examples$/,/^$/{/^  [^#]/p}' | sed ':a;/\\$/{N;s/ \\\n */ /;ba}' |
        sed 's/^ *//;s/.* | //'
}

for command in "" "${commands[@]}"; do
    n=0
    while read -ra words; do
        parses "${words[@]}"
        n=$((n + 1))
    done < <(examples "$command")
    [ "$n" -gt 0 ] || complain "cairn $command --help has no example"
done

for command in "${commands[@]}"; do
    expect 0 "$CAIRN_BINARY" "$command" --help
    says "all flags: cairn $command --help-all"
    [ "$(grep -c '^  --' "$work/.stdout")" -le 14 ] || complain "cairn $command --help has more than 14 flags"
    expect 0 "$CAIRN_BINARY" "$command" --help-all
    says "cairn $command" --config --print-config
    expect 0 "$CAIRN_BINARY" "$command" --print-config
    cp "$work/.stdout" printed.json
    expect 0 "$CAIRN_BINARY" "$command" --config printed.json --print-config
    cmp -s "$work/.stdout" printed.json || complain "cairn $command: --print-config of its own file differs"
    expect 2 "$CAIRN_BINARY" "$command" --no-such-flag 3
    says "unknown flag --no-such-flag" "cairn $command --help-all"
done

expect 2 "$CAIRN_BINARY" gleu
says "nearest is 'glue'"
expect 2 "$CAIRN_BINARY" train
says "cairn glue"
expect 0 "$CAIRN_BINARY" glue --verbose --batch_size 3 --batch-size 4 --print-config # wrappers append flags
says "last value counts: --batch-size" '"batch-size": 4'
expect 2 "$CAIRN_BINARY" plan --model-config bert-tiny --ranks 4 --per_device_train_batch_size 8
says "--batch-size" "or 32 if each rank has 8"
expect 2 env CAIRN_BACH_SIZE=3 "$CAIRN_BINARY" glue
says CAIRN_BACH_SIZE CAIRN_BATCH_SIZE
expect 2 "$scripts/test.sh" everything
says "unknown stage 'everything'"
finish
