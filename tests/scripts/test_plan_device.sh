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

# GELU in the kernels of products: faster, where the build knows the cuda backend; other GPUs have no such kernels.
export CAIRN_CUDA_FUSED_GELU=1
expect 2 "$CAIRN_BINARY" plan --device a100 --model-config "$large"
says "CAIRN_CUDA_FUSED_GELU: it is for GPUs of compute capability 9.0"
if [ -e "${CAIRN_TEST_BUILD_DIR:-$source_dir/build}/cairn_cuda.so" ]; then
    plan h100 "${full[@]}" --explain-cost
    above "$(per_second)" "${rate[h100]}" "with GELU in products, and without"
else
    expect 2 "$CAIRN_BINARY" plan --device h100 --model-config "$large"
    says "only a build with the cuda backend plans with it"
fi
unset CAIRN_CUDA_FUSED_GELU

# The drawing says what is drawn, in predicted time: a curve and the mark of backward's begin for each policy.
plan h200 --batch-size 64 --max-seq-length 128 --svg memory.svg
for text in "BERT 24 × 1024; batch 64 × 128 tokens, bf16" "micro-batch: 8192 tokens" \
    "ms of one micro-batch, predicted for h200; dots: backward begins" "half-attention: peak " "full: peak "; do
    grep -qF "$text" memory.svg || complain "'$text' is not in the drawing"
done
policies=$(grep -c ': peak .* MiB, .* ms' memory.svg)
[ "$policies" -ge 8 ] || complain "$policies curves"
[ "$(grep -c '<circle' memory.svg)" -eq "$policies" ] || complain "$(grep -c '<circle' memory.svg) marks of $policies curves"
# Recompute takes longer: the curve of full ends behind that of none.
took() { sed -n "s/.*>$1: peak [0-9.]* MiB, \([0-9.e+]*\) ms<.*/\1/p" memory.svg; }
above "$(took full)" "$(took none)" "the time of full against none"
# A long micro-batch is drawn in seconds.
plan v100 --batch-size 8192 --max-seq-length 128 --memory-budget 1000GiB --svg long.svg
grep -q 's of one micro-batch, predicted for v100' long.svg && ! grep -q ' ms<\|>ms of' long.svg || complain "a long micro-batch is not drawn in seconds"

# The table and its JSON agree with the arithmetic.
plan h200 "${full[@]}" --json
json=$(sed -n 's/.*"name": "none".*"seq_per_s": \([0-9.]*\).*/\1/p' "$work/.stdout")
awk -v a="$json" -v b="${rate[h200]}" 'BEGIN { exit !(a / b > 0.9999 && a / b < 1.0001) }' || complain "JSON says $json, the arithmetic ${rate[h200]}"
plan h200 "${full[@]}"
says "h200, bf16" "pretraining" "the device's context and libraries" "seq/s"

# Packed sequences of half the length: about twice as many.
printf '# lengths\n256 3\n' >half.tsv
plan h200 --batch-size 128 --max-seq-length 512 --predictions 76 --lengths half.tsv --explain-cost
says "of 256.00 tokens"
awk -v a="$(per_second)" -v b="${rate[h200]}" 'BEGIN { exit !(a / b > 2 && a / b < 2.4) }' || complain "packed: $(per_second), full: ${rate[h200]}"

# Evaluation takes no more memory than training, whatever its batch.
for n in 1 128; do
    expect 0 "$CAIRN_BINARY" plan --device h200 --model-config "$large" --batch-size 2 --max-seq-length 64 --eval-batch-size "$n" --json
    grep -oE '"(activations|scratch)": [0-9]+' .stdout >"evaluated-$n"
done
[ "$(grep -c activations evaluated-1)" -ge 8 ] && cmp evaluated-1 evaluated-128 || complain "evaluation takes memory of its own"

# What recompute saves and costs.
plan h200 "${full[@]}" --recompute full --explain-cost
says "recompute  linear"
above "${rate[h200]}" "$(per_second)" "none against full"

# Offload: as full, but for the inputs of 23 layers, which lie on the host; the arithmetic adds up lane by lane.
plan h200 "${full[@]}" --json
activations() { sed -n "s/.*\"name\": \"$1\".*\"activations\": \([0-9]*\),.*/\1/p" "$work/.stdout"; }
offloaded=$(sed -n 's/.*"name": "offload".*"offloaded": \([0-9]*\),.*/\1/p' "$work/.stdout")
awk -v f="$(activations full)" -v o="$(activations offload)" -v h="$offloaded" 'BEGIN { exit !(h > 0 && f - o == h / 23 * 21) }' ||
    complain "full $(activations full) B, offload $(activations offload) B and $offloaded B on the host"
plan h200 "${full[@]}"
says "offload: " "of pinned memory of the host"
plan h200 "${full[@]}" --recompute offload --explain-cost
says "link 50 GB/s to the host and 50 back" "beside     fetch" "the other lanes work while compute does"
expect 2 "$CAIRN_BINARY" plan --backend ref --model-config "$large" --recompute offload --explain
says "a device that copies while it computes"

# A run's own profile beside its prediction: every op of the plan has its ratio, and the sums are the rows'.
make_tiny_bert tiny
run=(--model-config tiny/config.json --precision fp32 --max-seq-length 16 --batch-size 8 --recompute full --backend cpu)
[ -e "${CAIRN_TEST_BUILD_DIR:-$source_dir/build}/cairn_cpu.so" ] || run[-1]=ref
expect 0 "$CAIRN_BINARY" glue --task MNLI --data-dir "$sample" --vocab tiny/vocab.txt --do-train --max-steps 4 --profile 2 \
    --output-dir profiled "${run[@]}"
expect 0 "$CAIRN_BINARY" plan --task MNLI "${run[@]}" --costs profiled/profile/kernels.csv
says "measured ms    ratio"
awk '$1 ~ /^(begin|forward|recompute|backward|update)$/ && $2 != "in" { rows++; with += NF == 12; sum += $(NF - 1) }
     $1 == "step" && $2 == "in" { all = $(NF - 1) }
     END { exit !(rows > 15 && with == rows && all > 0 && sum / all > 0.99 && sum / all < 1.01) }' "$work/.stdout" ||
    complain "measured beside predicted: $(cat "$work/.stdout")"
expect 1 "$CAIRN_BINARY" plan --task MNLI "${run[@]}" --costs tiny/config.json
says "tiny/config.json has no op of this plan; expected the kernels.csv"
expect 1 "$CAIRN_BINARY" plan --task MNLI "${run[@]}" --costs nowhere.csv

printf '600 1\n' >long.tsv
printf '5 many\n' >bad.tsv
expect 2 "$CAIRN_BINARY" plan --device h200 --model-config "$large" --max-seq-length 512 --lengths long.tsv
says "long.tsv has sequences of 600 tokens" "--max-seq-length 600"
expect 1 "$CAIRN_BINARY" plan --device h200 --model-config "$large" --lengths bad.tsv
says "bad.tsv:1: expected a length"
expect 0 "$CAIRN_BINARY" plan --device v100 --model-config bert-tiny
says "v100, f32" "predicted only: the cuda backend needs 7.5"
expect 0 "$CAIRN_BINARY" plan --device T4 --model-config bert-tiny --precision fp16
says "t4, f16"
! grep -q 'predicted only' <<<"$output" || complain "a T4 is refused"
expect 2 "$CAIRN_BINARY" plan --device v100 --model-config bert-tiny --precision bf16
says "the v100 has fp16 and fp32"
# The largest size fits, and one more does not.
small=(plan --device h100 --model-config bert-tiny --memory-budget 1GiB)
largest() { # WHAT FLAG FLAGS...
    local what=$1 flag=$2 size
    shift 2
    expect 0 "$CAIRN_BINARY" "${small[@]}" --largest "$what" "$@"
    says " s per step predicted" "recompute "
    size=$(sed -n "s/^largest $what: //p" "$work/.stdout")
    expect 0 "$CAIRN_BINARY" "${small[@]}" --largest "$what" --json "$@"
    [ "$(json_number "$work/.stdout" size)" = "$size" ] || complain "$what: $size, and in JSON $(cat "$work/.stdout")"
    [ "$flag" ] || return 0
    expect 0 "$CAIRN_BINARY" "${small[@]}" "$@" "$flag" "$size"
    expect 76 "$CAIRN_BINARY" "${small[@]}" "$@" "$flag" $((size + 1))
}
largest batch --batch-size --recompute auto --max-seq-length 128 --micro-batch-tokens step
largest length --max-seq-length --recompute auto --batch-size 512 --micro-batch-tokens step
largest layers "" --recompute none --batch-size 64
expect 2 "$CAIRN_BINARY" "${small[@]}" --largest width
says "--largest 'width': expected batch, length or layers"
expect 2 "$CAIRN_BINARY" "${small[@]}" --largest batch --explain
expect 2 "$CAIRN_BINARY" "${small[@]}" --largest layers --recompute 'full*1,none*1'
says "expected a policy for any, as auto or full"
expect 76 "$CAIRN_BINARY" "${small[@]}" --largest batch --memory-budget 16MiB
says "It fits with --memory-budget " "no schedule of these micro-batches takes less than "
expect 76 "$CAIRN_BINARY" plan --device h200 --model-config bert-tiny --memory-budget 16MiB --json
says '"fits": false' "more than the memory budget of 16.0 MiB. It fits with --memory-budget "
expect 2 "$CAIRN_BINARY" plan --device h200 --model-config bert-tiny --memory-budget 16
says "a size with its unit"
expect 2 "$CAIRN_BINARY" plan --device h200 --model-config bert-tiny --recompute half
expect 2 "$CAIRN_BINARY" plan --device h200 --model-config bert-tiny --recompute every:0
expect 2 "$CAIRN_BINARY" plan --device h200 --model-config bert-lage
says "no size of that name; expected a config.json, or bert-tiny"
expect 2 "$CAIRN_BINARY" plan --device h300 --model-config "$large"
says "'h300' is unknown; expected h200, h100, a100, b200, v100 or t4"
finish
