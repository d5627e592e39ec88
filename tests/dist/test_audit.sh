#!/usr/bin/env bash
# --audit on several ranks: a fault is found, the step is done again with the bits of a quiet run, a rank that is wrong
# twice is excluded, with a report that names its place. cairn verify with many ranks. Digests of sharded optimizers.
set -euo pipefail
# shellcheck source=tests/dist/ranks.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/ranks.sh"

make_tiny_bert tiny
small_data 40
glue=(glue --model-config tiny/config.json --vocab tiny/vocab.txt --data-dir data --do-train --backend ref
    --batch-size 9 --max-steps 4 --max-seq-length 32 --snapshot-steps 0)
# of the forward pass, so its number is that of one rank's plan
instr=$("$CAIRN_BINARY" plan --model-config tiny/config.json --backend ref --recompute full --audit recompute \
    --max-seq-length 32 --batch-size 9 --explain 2>/dev/null | awk '$2 == "forward" && / linear +l0.qkv/ && !n++ { print $1 }')

# same DIR DIR: the same weights
same() { cmp -s "$1/model.safetensors" "$2/model.safetensors" || complain "$1 and $2 have other weights"; }
# flip RANK STEP ATTEMPTS: a bit of the first layer's query of the first row
flip() { export CAIRN_TEST_FLIP="$1 $2 $3 $instr 0 20"; }
digests_of() { grep -o '"grads_digest.*' "$1/metrics.jsonl"; }

for n in 2 3; do
    unset CAIRN_TEST_FLIP
    start "$n" quiet "${glue[@]}" --output-dir "quiet$n" --digest-steps 2
    ended 0
    start "$n" clean "${glue[@]}" --output-dir "clean$n" --audit recompute,100% --recompute full --shard optimizer \
        --digest-steps 2
    ended 0
    same "quiet$n" "clean$n"
    [ "$(digests_of "quiet$n")" = "$(digests_of "clean$n")" ] || complain "$n ranks: digests differ"
    grep -q "4 of them computed twice, 0 differences" clean.0 || complain "$n ranks: no summary"
    grep -q "the second time on another rank" clean.0 || complain "$n ranks: not on another rank"

    flip 1 2 1 # once: done again
    start "$n" once "${glue[@]}" --output-dir "once$n" --audit recompute --recompute full
    ended 0
    same "quiet$n" "once$n"
    grep -q "rank 1 on .*: instr .* (linear l0.qkv') made tensor 'l0.qkv'' with other bits .* row 0" once.0 ||
        complain "$n ranks: the fault is not named: $(cat once.0)"
    grep -q '"step": 2, "attempt": 1, .*"rank": 1, .*"tensor": "l0.qkv.", "row": 0,.*"excluded": false' \
        "once$n/audit.jsonl" || complain "$n ranks: audit.jsonl is wrong: $(cat "once$n/audit.jsonl")"

    flip 1 3 9 # always: excluded
    start "$n" always "${glue[@]}" --output-dir "always$n" --audit recompute --recompute full
    ended 77
    for ((r = 0; r < n; r++)); do
        grep -q "step 3: rank 1 on .* computed wrongly twice, and is excluded .*step 2 is saved" "always.$r" ||
            complain "rank $r of $n does not say it: $(tail -n 2 "always.$r")"
    done
    has_file "always$n/audit-report.txt"
    unset CAIRN_TEST_FLIP
    start "$n" again "${glue[@]}" --output-dir "always$n" --recompute full
    ended 77
    grep -q "local rank 1 on .* is excluded" again.0 || complain "$n ranks: the excluded place is taken: $(tail -n 1 again.0)"
    rm "always$n/audit-report.txt"
    start "$n" repaired "${glue[@]}" --output-dir "always$n" --recompute full
    ended 0
    same "quiet$n" "always$n"

    flip 1 3 9 # the same wrong bits each time: on two ranks nobody can say whose they are
    start "$n" twice "${glue[@]}" --output-dir "twice$n" --audit 100%
    ended 77
    if [ "$n" -eq 2 ]; then
        grep -q "rank 0 on .* and rank 1 on .* computed wrongly in each attempt" twice.0 || complain "$(tail -n 2 twice.0)"
    else
        grep -q "step 3: rank 1 on .* computed wrongly twice" twice.0 || complain "$(tail -n 2 twice.0)"
    fi
    unset CAIRN_TEST_FLIP
    start "$n" verify verify "quiet$n"
    ended 0
    grep -q "4 steps computed again, up to step 4; all agree" verify.0 || complain "$(tail -n 2 verify.0)"
done

# The launcher does not start again where a host is excluded and no other has its slots. Of two reports only the second
# counts when the first was removed.
export CAIRN_PEER_TIMEOUT=1h CAIRN_CONNECT_TIMEOUT=1h # no rank is lost here
flip 1 3 9
launched=("$CAIRN_BINARY" launch --ranks 2 --max-restarts 3 -- "${glue[@]}" --output-dir launched --recompute full)
expect 77 "${launched[@]}" --audit recompute
says "launched/audit-report.txt names a host that computes wrongly" "not started again" \
    "1 fault: rank 1 on" "rank 1 on localhost is excluded by --audit: see launched/audit-report.txt"
if grep -q 'starting again' <<<"$output"; then complain "a start on an excluded host: $output"; fi
rm launched/audit-report.txt
flip 0 4 9
expect 77 "${launched[@]}" --audit recompute
unset CAIRN_TEST_FLIP
expect 77 "${launched[@]}"
says "local rank 0 on"
if grep -q 'local rank 1 on' <<<"$output"; then complain "a repaired place is excluded: $output"; fi
rm launched/audit-report.txt
expect 0 "${launched[@]}"
same quiet2 launched

start 2 other verify quiet3
ended 2
grep -q "cairn launch --ranks 3 -- verify quiet3" other.0 || complain "other number of ranks: $(tail -n 1 other.0)"
expect 0 "$CAIRN_BINARY" launch --ranks 3 -- verify quiet3 --steps 2-3
says "3 steps computed again, up to step 3; all agree"

finish
