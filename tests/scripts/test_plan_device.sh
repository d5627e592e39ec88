#!/usr/bin/env bash
# `cairn plan` for GPUs that are not here: predictions follow rates and lengths, the arithmetic adds up, JSON agrees.
set -euo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

large=$source_dir/bench/configs/bert-large.json
plan() { # DEVICE FLAG...
    local device=$1
    shift
    expect 0 "$CAIRN_BINARY" plan --device "$device" --model-config "$large" --micro-batch-tokens step --optimizer lamb "$@"
}
per_second() { sed -n 's/.* s per step: \([0-9.e+]*\) sequences.*/\1/p' "$work/.stdout"; } # of --explain-cost
above() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > b && b > 0) }' || complain "expected $1 > $2: $3"; }

full=(--batch-size 64 --max-seq-length 512 --predictions 76)
declare -A rate
for device in h200 h100 a100; do
    plan "$device" "${full[@]}" --explain-cost
    says "predicted: the $device's data sheet, not measured" "forward    mlm_xent" "update     lamb" "bound by"
    rate[$device]=$(per_second)
done
above "${rate[h200]}" "${rate[h100]}" "an H200 against an H100"
above "${rate[h100]}" "${rate[a100]}" "an H100 against an A100"
plan h200 "${full[@]}" --explain-cost
awk '$2 == "in" && $1 != "step" { sum += $7 } $1 == "step" && $2 == "in" { all = $7 }
     END { exit !(all > 0 && sum / all > 0.999 && sum / all < 1.001) }' "$work/.stdout" || complain "the phases do not add up to the step"

# The table and its JSON agree with the arithmetic.
plan h200 "${full[@]}" --json
json=$(sed -n 's/.*"name": "none".*"seq_per_s": \([0-9.]*\).*/\1/p' "$work/.stdout")
awk -v a="$json" -v b="${rate[h200]}" 'BEGIN { exit !(a / b > 0.9999 && a / b < 1.0001) }' || complain "JSON says $json, the arithmetic ${rate[h200]}"
plan h200 "${full[@]}"
says "h200, bf16" "pretraining" "of the device's context and libraries" "seq/s"

# Packed sequences of half the length: about twice as many.
printf '# lengths\n256 3\n' >half.tsv
plan h200 --batch-size 128 --max-seq-length 512 --predictions 76 --lengths half.tsv --explain-cost
says "of 256.00 tokens"
awk -v a="$(per_second)" -v b="${rate[h200]}" 'BEGIN { exit !(a / b > 2 && a / b < 2.4) }' || complain "packed: $(per_second), full: ${rate[h200]}"

# What recompute saves and costs.
plan h200 "${full[@]}" --recompute full --explain-cost
says "recompute  linear"
above "${rate[h200]}" "$(per_second)" "none against full"

# Offload: as full, but for the inputs of 23 layers, which lie on the host; the arithmetic adds up lane by lane.
plan h200 "${full[@]}" --json
activations() { sed -n "s/.*\"name\": \"$1\".*\"activations\": \([0-9]*\),.*/\1/p" "$work/.stdout"; }
offloaded=$(sed -n 's/.*"name": "offload".*"offloaded": \([0-9]*\),.*/\1/p' "$work/.stdout")
awk -v f="$(activations full)" -v o="$(activations offload)" -v h="$offloaded" 'BEGIN { exit !(h > 0 && f - o == h / 23 * 22) }' ||
    complain "full $(activations full) B, offload $(activations offload) B and $offloaded B on the host"
plan h200 "${full[@]}"
says "offload: " "of pinned memory of the host"
plan h200 "${full[@]}" --recompute offload --explain-cost
says "link 50 GB/s to the host and 50 back" "beside     fetch" "the other lanes work while compute does"
expect 2 "$CAIRN_BINARY" plan --backend ref --model-config "$large" --recompute offload --explain
says "a device that copies while it computes"

printf '600 1\n' >long.tsv
printf '5 many\n' >bad.tsv
expect 2 "$CAIRN_BINARY" plan --device h200 --model-config "$large" --max-seq-length 512 --lengths long.tsv
says "long.tsv has sequences of 600 tokens" "--max-seq-length 600"
expect 1 "$CAIRN_BINARY" plan --device h200 --model-config "$large" --lengths bad.tsv
says "bad.tsv:1: expected a length"
expect 0 "$CAIRN_BINARY" plan --device v100 --model-config bert-tiny
says "v100, f16"
expect 2 "$CAIRN_BINARY" plan --device v100 --model-config bert-tiny --precision bf16
says "the v100 has fp16 and fp32"
expect 76 "$CAIRN_BINARY" plan --device h200 --model-config bert-tiny --memory-budget 16MiB --json
says '"fits": false' "no plan fits the memory budget of 16.0 MiB"
expect 2 "$CAIRN_BINARY" plan --device h200 --model-config bert-tiny --memory-budget 16
says "a size with its unit"
expect 2 "$CAIRN_BINARY" plan --device h200 --model-config bert-tiny --recompute half
expect 2 "$CAIRN_BINARY" plan --device h200 --model-config bert-tiny --recompute every:0
expect 2 "$CAIRN_BINARY" plan --device h300 --model-config "$large"
says "'h300' is unknown; expected h200, h100, a100, b200 or v100"
finish
