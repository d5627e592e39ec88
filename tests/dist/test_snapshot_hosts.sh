#!/usr/bin/env bash
# Two hosts, as network namespaces, with two ranks each and a copy of every slice on the other host: one host is lost
# with its memory, and the run resumes from memory, with a bit-equal result.
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/dist/hosts.sh
. "$here/hosts.sh"
[ -n "${CAIRN_TEST_HOSTS:-}" ] || within_hosts 2 "$here/${0##*/}" "$@"
# shellcheck source=tests/dist/snapshot_lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/snapshot_lib.sh"
skip_without_gloo
within_hosts 2 "$0" "$@"

make_case
patiently
run=("${task[@]}" "${patient[@]}" --max-steps 20 --bucket-size 16KiB)
for i in "${!run[@]}"; do if [ "${run[i]}" = "$memory" ]; then where=$i; fi; done

# start_hosts 4 LOG FLAG...: ranks 0 and 1 on h1, 2 and 3 on h2. Each host has its own memory.
starts=start_hosts # of start_stopped
start_hosts() {
    local log=$2 r host
    shift 2
    serve_rendezvous 4 10.77.0.254
    mkdir -p "$memory/h1" "$memory/h2"
    ranks=()
    for r in 0 1 2 3; do
        host=h$((r / 2 + 1))
        run[where]=$memory/$host
        RANK=$r WORLD_SIZE=4 LOCAL_RANK=$((r % 2)) LOCAL_WORLD_SIZE=2 CAIRN_RENDEZVOUS=$met_at CAIRN_JOB_TOKEN=$token \
            ip netns exec "$host" "$CAIRN_BINARY" "${run[@]}" "$@" \
            >"$log.$r" 2>&1 </dev/null &
        ranks[r]=$!
    done
}

start_hosts 4 log --output-dir whole --snapshot-steps 0
end_ranks
[ "${codes[*]}" = "0 0 0 0" ] || { complain "${codes[*]}" && tail -n 3 log.*; }

for case in "1 none" "2 optimizer" $(quick_or_deep "" "1|optimizer 2|none"); do
    read -r lost shard <<<"${case//|/ }"
    out=out$lost$shard
    start_stopped 12 4 log --output-dir "$out" --snapshot-steps 3 --shard "$shard"
    kill_stopped 0 1 2 3
    end_ranks
    [ "$(find "$memory" -name 'cairn-*.snapshot' | wc -l)" -eq 8 ] || complain "not four slices and four copies: $(find "$memory")"
    rm -rf -- "$memory/h$lost"
    before=$(steps_in "$out")
    start_hosts 4 log --output-dir "$out" --snapshot-steps 3 --shard "$shard"
    end_ranks
    [ "${codes[*]}" = "0 0 0 0" ] || { complain "${codes[*]} after host $lost was lost" && tail -n 3 log.*; }
    grep -q 'partly from copies on other hosts' log.0 || { complain "no copies were used" && cat log.0; }
    step=$(sed -n 's/^memory .* holds step \([0-9]*\) of this run.*/\1/p' log.0)
    [ "$((before - step))" -le 6 ] || complain "lost $((before - step)) steps"
    same_run whole "$out" 20
    [ "$(find "$memory" -name 'cairn-*.snapshot' | wc -l)" -eq 0 ] || complain "snapshots remain: $(find "$memory")"
done

# A host is lost, and a rank of the other host writes a checkpoint at once, from that host's slices and copies. Without
# copies its message names the missing slices.
start_stopped 12 4 log --output-dir left --snapshot-steps 3 --shard optimizer
kill_stopped 0 1
end_ranks
[ "${codes[*]}" = "137 137 77 77" ] || { complain "${codes[*]} after host 1 was lost" && tail -n 3 log.*; }
step=$(sed -n 's/.*Step \([0-9]*\) of 20 is saved in .*/\1/p' log.2)
{ [ -n "$step" ] && [ -e "left/checkpoint-$step/manifest.json" ]; } || { complain "host 2 saved nothing" && tail -n 2 log.2; }
rm -rf -- "$memory/h1" "$memory/h2"
start_hosts 4 log --output-dir left --snapshot-steps 3 --shard optimizer
end_ranks
grep -q "^resuming from .*checkpoint-$step: step $step of 20" log.0 || { complain "it did not resume from step $step" && cat log.0; }
same_run whole left 20
# No host has every slice, the survivors of both have: each writes some of those of its host.
start_stopped 12 4 log --output-dir joined --snapshot-steps 3 --shard optimizer --snapshot-replicas 0
kill_stopped 0
end_ranks
[ "${codes[*]}" = "137 77 77 77" ] || { complain "${codes[*]} after rank 0 was lost" && tail -n 3 log.*; }
step=$(sed -n 's/.*Step \([0-9]*\) of 20 is saved in .* by 3 ranks.*/\1/p' log.1)
{ [ -n "$step" ] && [ -e "joined/checkpoint-$step/manifest.json" ]; } || { complain "two hosts saved nothing together" && tail -n 2 log.?; }
rm -rf -- "$memory/h1" "$memory/h2"
start_hosts 4 log --output-dir joined --snapshot-steps 3 --shard optimizer
end_ranks
grep -q "^resuming from .*checkpoint-$step: step $step of 20" log.0 || { complain "it did not resume from step $step" && cat log.0; }
same_run whole joined 20
# Rank 0 has lost its host's memory, so it does not lead, and gives the folder back.
start_stopped 12 4 log --output-dir emptied --snapshot-steps 3 --shard optimizer
rm -f "$memory/h1"/cairn-*
kill_stopped 1
end_ranks
[ "${codes[*]}" = "77 137 77 77" ] || { complain "${codes[*]} after the memory of host 1 was lost" && tail -n 3 log.*; }
grep -q 'Step [0-9]* of 20 is saved in emptied by 2 ranks' log.2 || { complain "host 2 saved nothing" && tail -n 2 log.?; }
grep -q 'rank 2 on .* saved step' log.0 || { complain "rank 0 does not follow" && tail -n 2 log.0; }
rm -rf -- "$memory/h1" "$memory/h2"
start_stopped 12 4 log --output-dir single --snapshot-steps 3 --shard optimizer --snapshot-replicas 0
kill_stopped 0 1
end_ranks
grep -q 'Nothing is saved, .* of 4 slices lacks number 0, 1' log.2 || { complain "host 2 does not name the missing slices" && tail -n 2 log.2; }
rm -rf -- "$memory/h1" "$memory/h2"

# One host is cut off: all ranks end with 77. Its snapshots count again when it is back.
start_stopped 9 4 log --output-dir cut --snapshot-steps 3
ip link set to2 down
for r in 0 1; do silence "$r" 2 3 && silence $((r + 2)) 0 1; done
kill -CONT "${ranks[@]}"
end_ranks
heard
[ "${codes[*]}" = "77 77 77 77" ] || { complain "${codes[*]} after the cable was cut" && tail -n 3 log.*; }
ip link set to2 up
# h1 answers h2 that nothing listens there.
back() { ip netns exec h2 bash -c 'exec 3<>/dev/tcp/10.77.0.1/1' 2>&1 | grep -q refused; }
wait_until "$hang_limit" back || complain "the cable does not come back"
start_hosts 4 log --output-dir cut --snapshot-steps 3
end_ranks
[ "${codes[*]}" = "0 0 0 0" ] || { complain "${codes[*]} after the cable was back" && tail -n 3 log.*; }
same_run whole cut 20
exit $((failures > 0))
