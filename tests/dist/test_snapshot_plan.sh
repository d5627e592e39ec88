#!/usr/bin/env bash
# The memory of snapshots in `cairn plan --ranks` is that of the files of a run.
# shellcheck source=tests/dist/snapshot_lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/snapshot_lib.sh"
skip_without_gloo
exec 2>/dev/null # the shell reports every killed process

make_case
cat >config.json <<'END'
{"vocab_size": 200, "hidden_size": 192, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 768,
 "max_position_embeddings": 32}
END
spare=600000
planned() { sed -n "s/.*\"ranks\": $1,.*\"$2\": \\([0-9]*\\).*/\\1/p" .stdout; }

for n in 2 3; do
    expect 0 "$CAIRN_BINARY" plan --model-config config.json --ranks "$n" --backend ref --max-seq-length 32 --batch-size 6 --bucket-size 64KiB --json
    plan=$(planned "$n" snapshot)
    [ "$(planned "$n" snapshot_copies)" -eq "$plan" ] || complain "copies at $n ranks: $(cat .stdout)"
    start_stopped 2 "$n" log "${task[@]}" "${patient[@]}" --bucket-size 64KiB --max-steps 9 --snapshot-steps 1 --output-dir "out$n"
    kill -9 "${ranks[@]}"
    end_ranks
    [ "$(snapshots_left)" -eq "$n" ] || complain "$(snapshots_left) files of $n ranks"
    most=0 sum=0
    for file in "$memory"/cairn-*; do
        bytes=$(($(stat -c '%b * %B' "$file")))
        sum=$((sum + bytes))
        if [ "$bytes" -gt "$most" ]; then most=$bytes; fi
    done
    # at least the actual bytes, and more by at most the room for small files
    { [ "$most" -le "$plan" ] && [ "$((plan - most))" -lt "$spare" ]; } || complain "$n ranks: planned $plan bytes for one, found $most"
    all=$(planned "$n" snapshots)
    { [ "$sum" -le "$all" ] && [ "$((all - sum))" -lt "$((n * spare))" ]; } || complain "$n ranks: planned $all bytes for all, found $sum"
    rm -f "$memory"/cairn-*
done

expect 0 "$CAIRN_BINARY" plan --model-config config.json --ranks 4 --backend ref --max-seq-length 32 --batch-size 8
one=$(sed -n "s/^snapshots: \\([0-9.]*\\) MiB of the host's memory for each of 4 ranks at most, .*/\\1/p" .stdout)
all=$(sed -n 's/^snapshots: .* 4 ranks at most, \([0-9.]*\) MiB with all of them on one host; .* with 1 copy$/\1/p' .stdout)
both=$(sed -n 's/^of each slice on other hosts, \([0-9.]*\) MiB for each rank.*/\1/p' .stdout)
awk -v o="$one" -v a="$all" -v b="$both" 'BEGIN { exit !(o > 1 && a > 3.5 * o && a <= 4 * o && b > 1.9 * o && b < 2.1 * o) }' ||
    complain "for one rank '$one', for all '$all', with copies '$both' MiB: $output"
expect 0 "$CAIRN_BINARY" plan --model-config config.json --ranks 4 --backend ref --max-seq-length 32 --batch-size 8 --snapshot-replicas 0
if grep -q 'on other hosts' .stdout; then complain "copies despite --snapshot-replicas 0: $output"; fi
expect 2 "$CAIRN_BINARY" plan --model-config config.json --ranks 4 --backend ref --max-seq-length 32 --snapshot-replicas 4
says '--snapshot-replicas 4 needs 5 hosts'
exit $((failures > 0))
