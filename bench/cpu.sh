#!/usr/bin/env bash
# The CPU backend's speed, in one run: every op of a BERT-Base step, full steps per recompute policy, the tokenizer, and,
# where PEER_PYTHON names a Python with PyTorch and Transformers, the same step there.
set -euo pipefail
# shellcheck source=hpcai_scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../hpcai_scripts/common.sh"

case ${1:-} in
-h | --help)
    cat <<'END'
cpu.sh [BATCH [LENGTH [ROUNDS]]]      (default 16 128 3)

Prints machine, versions and date, then the measurements. Set
  PEER_PYTHON  a Python with torch and transformers: measures them beside, with and without gradient checkpointing
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
