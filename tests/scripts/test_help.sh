#!/usr/bin/env bash
# --help of every script and command needs nothing, and every flag in it exists.
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
says glue plan convert inspect vocab report wiki shards pretrain "Exit codes"
expect 0 "$CAIRN_BINARY" --version
grep -qE '^cairn [0-9]+\.[0-9]+\.[0-9]+$' "$work/.stdout" || complain "--version says '$output'"

if "$CAIRN_BINARY" --help >/dev/full 2>full; then complain "a full standard output is not an error"; fi
grep -q 'cannot write to the standard output: No space' full || complain "message of a full standard output: $(cat full)"

for command in glue plan convert inspect vocab report sweep variability wiki shards pretrain doctor; do
    expect 0 "$CAIRN_BINARY" "$command" --help
    says "cairn $command" --config --print-config
    help=$output
    # Every flag in the text is a flag of this or another command. An error names the first that is not of this one.
    mapfile -t flags < <(grep -oE -- '--[a-z][a-z0-9-]*' <<<"$help" | sort -u | grep -vx -e --flag -e '--no-.*')
    until "$CAIRN_BINARY" "$command" "${flags[@]/%/=?}" --help >"$work/.stdout" 2>"$work/.stderr"; do
        read -r flag < <(sed -n 's/^error: [a-z ]*\(--[a-z0-9-]*\).*/\1/p' "$work/.stderr")
        ! grep -q 'unknown flag' "$work/.stderr" || complain "cairn $command --help names $flag, which is not a flag"
        mapfile -t rest < <(printf '%s\n' "${flags[@]}" | grep -vxF -e "$flag")
        [ ${#rest[@]} -lt ${#flags[@]} ] || { complain "cairn $command: $(cat "$work/.stderr")" && break; }
        flags=("${rest[@]}")
    done
    expect 0 "$CAIRN_BINARY" "$command" --print-config
    cp "$work/.stdout" printed.json
    expect 0 "$CAIRN_BINARY" "$command" --config printed.json --print-config
    cmp -s "$work/.stdout" printed.json || complain "cairn $command: --print-config of its own file differs"
    expect 2 "$CAIRN_BINARY" "$command" --no-such-flag 3
    says "unknown flag --no-such-flag" "cairn $command --help"
done

expect 2 "$CAIRN_BINARY"
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
