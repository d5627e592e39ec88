#!/usr/bin/env bash
# Snapshots within a memory budget: what a refusal says is so. A number of steps reserves their memory, auto takes them
# where there is room.
set -uo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

"$CAIRN_BINARY" vocab --input "$sample/train.tsv" --size 600 --output vocab.txt 2>/dev/null
glue=("$CAIRN_BINARY" glue --data-dir "$sample" --model-config bert-mini --vocab vocab.txt --do-train --max-seq-length 128
    --batch-size 32 --micro-batch-tokens step --backend ref --output-dir out --dry-run)
# mib NAME: that line of the plan's table
mib() { sed -n "s/^  $1  *\\([0-9.]*\\) MiB.*/\\1/p" <<<"$output" | head -n 1; }
add() { awk -v a="$1" -v b="$2" -v c="${3:-0}" 'BEGIN { printf "%.1f", a + b * 1 + c }'; }

expect 0 "${glue[@]}" --recompute none --snapshot-steps 5
snapshots=$(mib snapshots) peak=$(mib peak)
awk -v s="$snapshots" 'BEGIN { exit !(s > 40 && s < 300) }' || complain "bert-mini's snapshots take $snapshots MiB"
expect 0 "${glue[@]}" --recompute none --snapshot-steps 0
[ -z "$(mib snapshots)" ] || complain "--snapshot-steps 0 takes $(mib snapshots) MiB"
save=$(mib save)

# Without snapshots it fits, and with less kept too: both are said, and so.
budget=$(add "$peak" "-$save" -20)MiB
expect 76 "${glue[@]}" --recompute none --snapshot-steps 5 --memory-budget "$budget"
says "MiB of it for snapshots; --snapshot-steps 0 takes none)" "MiB, with --recompute auto, or with"
grep -qF -- "($snapshots MiB of it for snapshots" <<<"$output" || complain "the snapshots' $snapshots MiB are not said"
expect 0 "${glue[@]}" --recompute none --snapshot-steps 0 --memory-budget "$budget"
expect 0 "${glue[@]}" --recompute auto --snapshot-steps 5 --memory-budget "$budget"
[ "$(mib snapshots)" = "$snapshots" ] || complain "auto has $(mib snapshots) MiB for snapshots"

# Nothing fits with them: the smallest that does is the smallest.
expect 76 "${glue[@]}" --recompute none --snapshot-steps 5 --memory-budget "${snapshots}MiB"
says "MiB of it for snapshots"
smallest=$(sed -n 's/.*with --recompute auto and --memory-budget \([0-9]*\)MiB.*/\1/p' <<<"$output")
expect 0 "${glue[@]}" --recompute auto --snapshot-steps 5 --memory-budget "${smallest}MiB"
expect 76 "${glue[@]}" --recompute auto --snapshot-steps 5 --memory-budget "$(add "$smallest" -8)MiB"
says "($snapshots MiB of it for snapshots; --snapshot-steps 0 takes none)" "It fits with --memory-budget ${smallest}MiB"

# auto continues without, and says how much room there was.
export CAIRN_RENDEZVOUS=tcp://127.0.0.1 # as under a launcher: auto takes snapshots of one rank too
expect 0 "${glue[@]}" --recompute none --memory-budget "$(add "$peak" 20)MiB"
[ -n "$(mib snapshots)" ] || complain "auto takes no snapshots where there is room"
expect 0 "${glue[@]}" --recompute auto --memory-budget "$(add "$peak" -20)MiB" # the save buffer goes first
says "plan: recompute auto (none×4)" "; while a save is written recompute auto (" "the save buffer of $save MiB is in it"
[ "$(mib snapshots)" = "$snapshots" ] || complain "beside a plan for saves auto has $(mib snapshots) MiB for snapshots"
expect 0 "${glue[@]}" --recompute none --memory-budget "$(add "$peak" "-$save" -20)MiB"
says "no room for snapshots ($snapshots MiB) beside the" "none are taken"
[ -z "$(mib snapshots)" ] || complain "snapshots are in the plan that has no room for them"
exit $((failures > 0))
