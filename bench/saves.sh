#!/usr/bin/env bash
# Saves and resumes of two builds, interleaved: seconds of a save, seconds from a start to the first step of a resumed
# run, and rank 0's peak of resident memory.
set -euo pipefail

usage() {
    cat <<'END'
saves.sh OLD NEW [--model NAME] [--rounds N] [--ranks N] [-- FLAG...]

OLD, NEW: folders of built programs (cairn, cairn_cpu.so, cairn_gloo.so). FLAG: of cairn glue.
  --model NAME   bert-tiny, -mini, -small … (default bert-small)
  --rounds N     default 7
  --ranks N      default 1

A rank computes with one thread. A line for each build: medians of save, start and peak. Needs GNU time.
END
}

[ $# -ge 2 ] || { usage >&2 && exit 2; }
declare -A programs=([old]=$(realpath "$1") [new]=$(realpath "$2"))
model=bert-small rounds=7 ranks=1
shift 2
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    case $1 in
    --model) model=$2 ;;
    --rounds) rounds=$2 ;;
    --ranks) ranks=$2 ;;
    *) usage >&2 && exit 2 ;;
    esac
    shift 2
done
[ $# -eq 0 ] || shift
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd) work=$(mktemp -d "${TMPDIR:-/tmp}/cairn-saves.XXXXXX")
trap 'rm -rf -- "$work"' EXIT
cd "$work"
"${programs[new]}/cairn" vocab --input "$root/tasks/glue/sample/train.tsv" --size 600 --output vocab.txt 2>/dev/null

# train PROGRAMS FLAG...: all ranks; `peak` is rank 0's in KiB
train() {
    local rank from=$1 pids=()
    shift
    for ((rank = 0; rank < ranks; rank++)); do
        RANK=$rank WORLD_SIZE=$ranks LOCAL_RANK=$rank LOCAL_WORLD_SIZE=$ranks CAIRN_JOB_TOKEN=$$ \
            CAIRN_BACKEND_DIR=$from /usr/bin/time -o "peak$rank" -f %M "$from/cairn" glue --task MNLI \
            --data-dir "$root/tasks/glue/sample" --vocab vocab.txt --model-config "$model" --do-train \
            --max-seq-length 16 --batch-size 8 --snapshot-steps 0 --threads 1 --output-dir out "$@" >"log$rank" 2>&1 &
        pids+=($!)
    done
    for rank in "${!pids[@]}"; do wait "${pids[rank]}" || { cat "log$rank" >&2 && exit 1; }; done
    peak=$(cat peak0)
}

# value STEP NAME: of that step's line
value() { sed -n "$1p" out/metrics.jsonl | grep -o "\"$2\": [0-9.]*" | sed 's/.* //'; }

for ((round = 0; round < rounds; round++)); do
    for side in old new; do
        rm -rf out
        train "${programs[$side]}" --max-steps 1 "$@"
        saved=$(echo "$(stat -c %.9Z out/checkpoint-1) - $(stat -c %.9Y out/metrics.jsonl)" | bc)
        echo "$saved" >>"save.$side"
        echo "$peak" >>"peak.$side"
        train "${programs[$side]}" --max-steps 2 --override "$@"
        echo "$(value 2 wall_s) - $(value 1 wall_s) - ($(value 2 trained_s) - $(value 1 trained_s))" | bc >>"start.$side"
    done
done
# middle FILE FORMAT: its median, least and most
middle() { sort -n "$1" | awk -v f="$2" '{ a[NR] = $1 } END { printf f " (" f "–" f ")", a[int((NR + 1) / 2)], a[1], a[NR] }'; }
for side in old new; do
    echo "$side: save $(middle save.$side %.2f) s, start $(middle start.$side %.2f) s, peak $(middle peak.$side %d) KiB"
done
