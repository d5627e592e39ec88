#!/usr/bin/env bash
# What snapshots cost: share of a step, waiting, persist rate, and seconds from a kill to the first new step.
set -euo pipefail

case "${1:-}" in
-h | --help)
    echo "bench/snapshot.sh [MODEL_CONFIG [STEPS [BATCH [FLAG...]]]]: a model by name or config.json (bert-base), steps (12),"
    echo "sequences (8), flags of cairn glue."
    echo "Trains without and with snapshots at every step, in turns; kills a run and goes on; persists what a killed run left."
    echo "CAIRN_BINARY: the program (build/cairn)."
    exit 0
    ;;
esac
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
cairn=${CAIRN_BINARY:-$root/build/cairn}
model=${1:-bert-base} steps=${2:-12} batch=${3:-8}
work=$(mktemp -d) memory=$(mktemp -d /dev/shm/cairn-bench-XXXXXX)
trap 'rm -rf -- "$work" "$memory"' EXIT
cd "$work"
"$cairn" vocab --input "$root/tasks/glue/sample/train.tsv" --size 600 --output vocab.txt 2>/dev/null
run=("$cairn" glue --data-dir "$root/tasks/glue/sample" --model-config "$model" --vocab vocab.txt --do-train
    --batch-size "$batch" --max-seq-length 128 --snapshot-dir "$memory" --save-every 1d "${@:4}")
value() { sed -n "s/.*\"$2\": *\\([-+0-9.eE]*\\).*/\\1/p" "$1" | head -n 1; }
# median FILE: seconds per step between the lines of metrics.jsonl, without the first three.
median() { sed -n 's/.*"wall_s": \([0-9.]*\).*/\1/p' "$1/metrics.jsonl" | awk 'NR > 3 { print $1 - last } { last = $1 }' | sort -n | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }'; }

for every in 0 1 0 1 0 1; do
    "${run[@]}" --output-dir "out$every" --snapshot-steps "$every" --max-steps "$steps" --resume never --verbose >/dev/null 2>"log$every"
    median "out$every" >>"steps$every"
done
middle() { sort -n "$1" | sed -n 2p; }
echo "model $model, $batch sequences per step"
echo "seconds per step: $(middle steps0) without, $(middle steps1) with a snapshot after every step"
awk -v a="$(middle steps0)" -v b="$(middle steps1)" 'BEGIN { printf "share of a step: %.2f %%\n", 100 * (b / a - 1) }'
grep -h '^debug: snapshots' log1 || true

"${run[@]}" --output-dir killed --snapshot-steps 1 --max-steps 1000 >/dev/null 2>log &
child=$!
until [ -s killed/metrics.jsonl ] && [ "$(wc -l <killed/metrics.jsonl)" -ge 4 ]; do sleep 0.05; done
kill -9 "$child"
before=$(wc -l <killed/metrics.jsonl)
wait "$child" 2>/dev/null || true
start=$(date +%s.%N)
"$cairn" snapshot persist --snapshot-dir "$memory" --output-dir killed >persisted
end=$(date +%s.%N)
bytes=$(du -sb "$(cat persisted)" | cut -f1)
awk -v b="$bytes" -v s="$start" -v e="$end" 'BEGIN { printf "persist: %.0f MB in %.2f s, %.0f MB/s\n", b / 1e6, e - s, b / 1e6 / (e - s) }'
rm -r "$(cat persisted)"
start=$(date +%s.%N)
"${run[@]}" --output-dir killed --snapshot-steps 1 --max-steps 1000 >/dev/null 2>log &
child=$!
until [ -n "$(sed -n 's/^memory .* holds step \([0-9]*\) .*/\1/p' log)" ]; do sleep 0.02; done
from=$(sed -n 's/^memory .* holds step \([0-9]*\) .*/\1/p' log)
until tail -n 1 killed/metrics.jsonl | grep -q "{\"step\": $((from + 1)),"; do sleep 0.02; done
end=$(date +%s.%N)
kill -9 "$child"
wait "$child" 2>/dev/null || true
awk -v s="$start" -v e="$end" -v l="$((before - from))" 'BEGIN { printf "from starting again to the first new step: %.1f s, %d steps lost\n", e - s, l }'
