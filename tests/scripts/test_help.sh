#!/usr/bin/env bash
# --help of every script and command: it comes, it needs nothing, and every flag it names exists.
set -euo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

# Scripts: nothing is installed, built or looked for; CAIRN_BINARY may even be wrong.
for name in quickstart test run_glue run_pretraining eval; do
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

for command in glue plan convert inspect vocab report wiki shards pretrain; do
    expect 0 "$CAIRN_BINARY" "$command" --help
    says "cairn $command" --config --print-config
    help=$output
    # Every flag that the text names is one, here or in another command.
    while read -r flag; do
        [ "$flag" != --flag ] || continue
        "$CAIRN_BINARY" "$command" "$flag=?" --help >"$work/.stdout" 2>"$work/.stderr" || true
        if grep -q 'unknown flag' "$work/.stderr" && [[ $flag != --no-* ]]; then
            complain "cairn $command --help names $flag, which is no flag"
        fi
    done < <(grep -oE -- '--[a-z][a-z0-9-]*' <<<"$help" | sort -u)
    expect 0 "$CAIRN_BINARY" "$command" --print-config
    cp "$work/.stdout" printed.json
    expect 0 "$CAIRN_BINARY" "$command" --config printed.json --print-config
    cmp -s "$work/.stdout" printed.json || complain "cairn $command: --print-config of its own file differs"
    expect 2 "$CAIRN_BINARY" "$command" --no-such-flag 3
    says "unknown flag --no-such-flag" nearest
done

expect 2 "$CAIRN_BINARY"
expect 2 "$CAIRN_BINARY" gleu
says "nearest is 'glue'"
expect 2 "$CAIRN_BINARY" glue --batch_size 3 --batch-size 3
says "--batch-size is given twice"
expect 2 env CAIRN_BACH_SIZE=3 "$CAIRN_BINARY" glue
says CAIRN_BACH_SIZE CAIRN_BATCH_SIZE
expect 2 "$scripts/test.sh" everything
says "unknown stage 'everything'"
finish
