#!/usr/bin/env bash
# A control group's memory limit, as a scheduler sets it for a job: a plan obeys it, and so does all that the run does. If the kernel kills a rank because
# of it, the message names the limit, there is no restart, and the launcher ends with 76.
set -uo pipefail
# shellcheck source=tests/dist/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
skip() { echo "skipped: $1" && exit 77; }
[ -e "$(dirname -- "$CAIRN_BINARY")/cairn_gloo.so" ] || skip "needs the gloo module"
[ "$(id -u)" -eq 0 ] || skip "control groups need root"
if [ -e /sys/fs/cgroup/memory/memory.limit_in_bytes ]; then
    group=/sys/fs/cgroup/memory/cairn-test-$$ limit=memory.limit_in_bytes
elif grep -qw memory /sys/fs/cgroup/cgroup.subtree_control 2>/dev/null; then
    group=/sys/fs/cgroup/cairn-test-$$ limit=memory.max
fi
mkdir "${group:=/nowhere/x}" 2>/dev/null || skip "there are no control groups with memory limits that can be made"
# shellcheck disable=SC2317 # by the trap
no_group() { rmdir "$group" 2>/dev/null; } # once its last process is gone
trap 'wait_until "$hang_limit" no_group; rm -rf -- "$work" "$CAIRN_SNAPSHOT_DIR"' EXIT
echo $((240 << 20)) >"$group/$limit" || skip "no limit can be set"

make_tiny_bert bert
# Below the memory of the libraries alone: refused before they are opened.
if [ -e "$(dirname -- "$CAIRN_BINARY")/cairn_cpu.so" ] && ! ldd "$CAIRN_BINARY" | grep -q libasan; then
    for mib in 12 20 27; do
        echo $((mib << 20)) >"$group/$limit"
        expect 76 bash -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" "$CAIRN_BINARY" glue --do-train \
            --model-config bert/config.json --vocab bert/vocab.txt --data-dir "$sample" --output-dir small --threads 1
        says "MiB of memory are free"
    done
    echo $((240 << 20)) >"$group/$limit"
fi
limited() { # limited FLAG...: two ranks within the group
    expect "$1" bash -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" timeout "$hang_limit" "$CAIRN_BINARY" launch --ranks 2 \
        --max-restarts 2 -- glue --do-train --model-config bert/config.json --vocab bert/vocab.txt --data-dir "$sample" \
        --output-dir "$2" --max-steps 3 "${@:3}"
}
# K-FAC's sets are written and read within the plan, also where it just fits: in the limit that the refusal names a run
# saves, stops, goes on and saves again.
if [ -e "$(dirname -- "$CAIRN_BINARY")/cairn_cpu.so" ] && ! ldd "$CAIRN_BINARY" | grep -q libasan; then
    sed 's/"hidden_size": *[0-9]*/"hidden_size": 256/; s/"intermediate_size": *[0-9]*/"intermediate_size": 1024/' bert/config.json >wide.json
    kfac=("$CAIRN_BINARY" glue --do-train --model-config wide.json --vocab bert/vocab.txt --data-dir "$sample" --output-dir kfac
        --batch-size 16 --recompute auto --kfac-interval 1 --kfac-lag 1 --snapshot-steps 0 --save-steps 1)
    echo $((60 << 20)) >"$group/$limit"
    expect 76 bash -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" "${kfac[@]}" --max-steps 4
    fits=$(sed -n 's/.*It fits with \([0-9]*\) MiB.*/\1/p' <<<"$output")
    echo $((fits << 20)) >"$group/$limit"
    expect 75 bash -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" "${kfac[@]}" --max-steps 4 --max-time 0.01s
    expect 0 bash -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" "${kfac[@]}" --max-steps 4
    says "resuming from" "no room for the save buffer"
    echo $((240 << 20)) >"$group/$limit"
fi
# Room for the libraries of one rank, and not of both, which open them at the same time.
if [ -e "$(dirname -- "$CAIRN_BINARY")/cairn_cpu.so" ] && ! ldd "$CAIRN_BINARY" | grep -q libasan; then
    for mib in 36 40 44; do
        echo $((mib << 20)) >"$group/$limit"
        limited 76 both --threads 1
        says "the libraries of 2 ranks here alone take 48 MiB"
    done
    echo $((240 << 20)) >"$group/$limit"
fi
limited 0 within
big=(--padded --batch-size 2048 --micro-batch-tokens 131072)
limited 76 refused "${big[@]}"
says "MiB"
[ ! -e refused/metrics.jsonl ] || complain "it trained although its plan does not fit"
limited 76 killed "${big[@]}" --memory-budget 8GiB
says "was killed by the kernel for memory: the limit there is 240 MiB"
if grep -q "starting again" <<<"$output"; then complain "it was restarted: $output"; fi
finish
