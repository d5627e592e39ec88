#!/usr/bin/env bash
# The CPU backend's speed, in one run: every op of a BERT-Base step, full steps per recompute policy, start and saves of
# the program, packed against padded on real data, the tokenizer, and, where PEER_PYTHON names a Python with PyTorch and
# Transformers, the same step there.
set -euo pipefail
# shellcheck source=hpcai_scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../hpcai_scripts/common.sh"

case ${1:-} in
-h | --help)
    cat <<'END'
cpu.sh [BATCH [LENGTH [ROUNDS]]]      (default 16 128 3)

Prints machine, versions and date, then the measurements. Set
  PEER_PYTHON  a Python with torch and transformers: measures them beside, with and without gradient checkpointing
  BERT_DIR, GLUE_DIR  a model and GLUE's data: measures MNLI, packed and padded, 40 steps each, twice
  VOCAB, TEXT  a vocabulary and a text file: measures the tokenizer
Keep the machine quiet meanwhile; figures of one run are to be compared with each other, not with another day's.
END
    exit 0
    ;;
esac

find_cairn
folder=$cairn_root/build
cmake --build "$folder" --target bench >/dev/null
export CAIRN_BACKEND_DIR=$folder
config=$cairn_root/bench/configs/bert-base.json
batch=${1:-16} length=${2:-128} rounds=${3:-3}

date -u +%Y-%m-%d
lscpu | grep -E '^(Model name|CPU\(s\)|L2 cache|L3 cache)'
uptime
for precision in fp32 bf16; do
    say "== ops, $precision =="
    "$folder/bench_ops" "$precision" "$length" || true
    say "== steps, $precision =="
    "$folder/bench_step" "$config" "$batch" "$length" "$rounds" "$precision"
done
say "== start and save: BERT-Base, random weights, 3 steps, a save at the end =="
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
sample=$cairn_root/tasks/glue/sample
"$cairn" vocab --input "$sample/train.tsv" --size 600 --output "$work/words.txt" 2>/dev/null
{ cat "$work/words.txt" && seq 100001 $((130522 - $(wc -l <"$work/words.txt"))); } >"$work/vocab.txt"
"$cairn" glue --model-config "$config" --vocab "$work/vocab.txt" --data-dir "$sample" --do-train --batch-size 4 --max-steps 3 \
    --save-every off --output-dir "$work/base" 2>/dev/null
# metrics.jsonl: wall_s is at the end of a step, which took sequences / seq_per_s
awk -F'[:,]' '/"step": 1,/ { for (i = 1; i < NF; i++) { if ($i ~ /"seq_per_s"/) r = $(i + 1); if ($i ~ /"wall_s"/) w = $(i + 1) }
              printf "start to first step: %.2f s\n", w - 4 / r }' "$work/base/metrics.jsonl"
sed -n 's/.*"save_stall_s": \([0-9.e-]*\).*/stall of the save: \1 s/p' "$work/base/run.json"
if [ -n "${BERT_DIR:-}" ] && [ -n "${GLUE_DIR:-}" ]; then
    say "== MNLI, 40 steps of 32, packed and padded to 128 =="
    for layout in packed padded packed padded; do
        flags=(--padded)
        [ "$layout" = padded ] || flags=()
        "$cairn" glue --model "$BERT_DIR" --data-dir "$GLUE_DIR" --do-train --max-steps 40 "${flags[@]}" --resume never \
            --output-dir "$work/mnli" 2>/dev/null
        sed -n "s/.*\"seq_per_s\": \([0-9.]*\).*/$layout: \1 seq\/s/p" "$work/mnli/run.json"
    done
fi
if [ -n "${PEER_PYTHON:-}" ]; then
    for precision in fp32 bf16; do
        for checkpointing in off on; do
            say "== PyTorch, $precision, gradient checkpointing $checkpointing =="
            "$PEER_PYTHON" "$cairn_root/bench/peer_cpu.py" --model-config "$config" --batch "$batch" --seq "$length" \
                --threads "$(nproc)" --warmup 1 --steps 2 --precision "$precision" --checkpointing "$checkpointing" || true
        done
    done
fi
if [ -n "${VOCAB:-}" ] && [ -n "${TEXT:-}" ]; then
    say "== tokenizer =="
    "$folder/bench_tokenize" "$VOCAB" "$TEXT"
fi
uptime
