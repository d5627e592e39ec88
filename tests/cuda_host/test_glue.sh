#!/usr/bin/env bash
# The real program trains through the CUDA backend on the host executor, a device with memory of its own: fine-tuning,
# evaluation, saving, resuming; recompute changes no bit; a plan that does not fit is refused with one that does.
set -euo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../scripts/lib.sh"

make_tiny_bert model
mkdir data
head -n 41 "$sample/train.tsv" >data/train.tsv
for name in dev_matched dev_mismatched; do head -n 6 "$sample/$name.tsv" >"data/$name.tsv"; done
export XDG_CACHE_HOME=$work/cache CAIRN_TEST_CUDA_HOST_DEVICE=64 # MiB
steps=4

# glue OUT FLAGS...
glue() {
    local out=$1
    shift
    expect 0 "$CAIRN_BINARY" glue --model-config model/config.json --vocab model/vocab.txt --data-dir data --do-train \
        --do-eval --max-steps $steps --batch-size 8 --max-seq-length 32 --micro-batch-tokens 128 --learning-rate 1e-3 \
        --eval-batch-size 4 --save-steps 2 --keep 9 --output-dir "$out" "$@"
}

glue none --backend cuda_host --precision fp32 --eval-every 3 --final last
says 'f32 on cuda_host' 'MiB on the device and' 'starting from random weights' 'trained 4 steps'
has_file none/model.safetensors none/eval_results.json none/best/model.safetensors none/checkpoint-2/optimizer.safetensors
[ "$(losses none | wc -l)" -eq $steps ] || complain "there are not $steps losses"
# The rates of the machine are kept, though this device has no memory to measure the copies of offload.
rates=(cache/cairn/rates-*.json)
kept=$(stat -c %i "${rates[0]}")
grep -q '"link_out": 0,' "${rates[0]}" || complain "the rates: $(cat "${rates[0]}")"
read -r measured planned < <(sed -n 's/.*peak memory \([0-9.]*\) MiB (planned \([0-9.]*\) MiB).*/\1 \2/p' <<<"$output")
awk -v m="$measured" -v p="$planned" 'BEGIN { exit !(m > 0.97 * p && m <= p) }' ||
    complain "planned $planned MiB of the device, took $measured MiB"

# Equal to ref except rounding, and ref reads the same model.
glue ref --backend ref --precision fp32
paste <(losses none) <(losses ref) | awk '{ d = $1 - $2; if (d < 0) d = -d; if (!(d < 2e-6)) bad = 1 } END { exit bad }' ||
    complain "the losses differ from ref's: $(paste <(losses none) <(losses ref))"
expect 0 "$CAIRN_BINARY" glue --model none --data-dir data --do-eval --backend ref --precision fp32 --max-seq-length 32 \
    --output-dir evaluated
by_device=$(json_number none/eval_results.json eval_loss) by_ref=$(json_number evaluated/eval_results.json eval_loss)
awk -v a="$by_device" -v b="$by_ref" 'BEGIN { d = a - b; exit !(d < 1e-5 && d > -1e-5) }' ||
    complain "loss in evaluation: $by_device, with ref $by_ref"
expect 0 "$CAIRN_BINARY" glue --model none --data-dir data --do-eval --backend cuda_host --precision fp32 \
    --max-seq-length 32 --output-dir evaluated
[ "$(json_number evaluated/eval_results.json eval_loss)" = "$by_device" ] || complain "evaluation alone gives another loss"
[ "$(stat -c %i "${rates[0]}")" = "$kept" ] || complain "the rates were measured again"

# TF32 is a precision of its own: other losses than fp32, its name in run.json and in the fingerprint.
glue tf32 --backend cuda_host --precision tf32 --attention own
says 'tf32 on cuda_host'
grep -q '"precision": "tf32"' tf32/run.json || complain "run.json does not say tf32"
grep -q 'TF32, attention own' tf32/checkpoint-4/state.json || complain "the fingerprint has neither TF32 nor the attention"
! cmp -s <(losses none) <(losses tf32) || complain "TF32 has the losses of fp32"
expect 2 "$CAIRN_BINARY" glue --model-config model/config.json --vocab model/vocab.txt --data-dir data --do-train --max-steps $steps \
    --batch-size 8 --max-seq-length 32 --micro-batch-tokens 128 --learning-rate 1e-3 --output-dir tf32 --backend cuda_host \
    --precision fp32 --attention own
says '--precision' "was 'tf32', is 'f32'"
for refused in '--backend ref --precision tf32' '--backend ref --attention cudnn'; do
    # shellcheck disable=SC2086 # flags are words
    expect 2 "$CAIRN_BINARY" glue --model-config model/config.json --vocab model/vocab.txt --data-dir data --do-train \
        --output-dir refused $refused
done
says "--attention cudnn: the backend 'ref' has no attention by cuDNN" '--attention own'
# CAIRN_CUDNN, a variable of the environment, names cuDNN; the options accept it.
CAIRN_CUDNN=/nowhere/libcudnn.so.9 expect 2 "$CAIRN_BINARY" glue --model-config model/config.json --vocab model/vocab.txt \
    --data-dir data --do-train --output-dir refused --backend cuda_host --attention cudnn
says '--attention cudnn: '

# bf16; less memory, the same bits.
for policy in none full offload auto; do
    budget=auto
    [ $policy != auto ] || budget=852K # 192K of them for the first products
    glue "bf16-$policy" --backend cuda_host --precision bf16 --recompute $policy --memory-budget $budget
    [ $policy != auto ] || says 'recompute auto (' 'bf16 on cuda_host'
    [[ $output != *'(none×2)'* ]] || complain "--recompute auto recomputes nothing within $budget"
    cmp <(losses bf16-none) <(losses "bf16-$policy") || complain "--recompute $policy: the losses differ"
    cmp bf16-none/model.safetensors "bf16-$policy/model.safetensors" || complain "--recompute $policy: another model"
done

# Resumed from step 2, as if the first run had ended there.
mkdir again
cp -r none/checkpoint-2 again/
glue again --backend cuda_host --precision fp32
says 'resuming from again/checkpoint-2: step 2 of 4'
cmp <(losses none | tail -n 2) <(losses again) || complain "going on: other losses"
cmp none/model.safetensors again/model.safetensors || complain "going on: another model"
cmp none/checkpoint-4/optimizer.safetensors again/checkpoint-4/optimizer.safetensors || complain "going on: other moments"

# fp16: the device skips updates that overflow; resumed from step 2 with the loss scale.
fp16=(--backend cuda_host --precision fp16 --init-loss-scale 33554432 --loss-scale-growth-interval 2)
glue fp16 "${fp16[@]}"
says 'f16 on cuda_host' 'step 1: the gradient overflows at loss scale 33554432; the update is skipped (1 so far)'
[ "$(losses fp16 | wc -l)" -eq $steps ] || complain "there are not $steps losses in fp16"
mkdir again-fp16
cp -r fp16/checkpoint-2 again-fp16/
glue again-fp16 "${fp16[@]}"
cmp <(losses fp16 | tail -n 2) <(losses again-fp16) || complain "going on in fp16: other losses"
cmp fp16/model.safetensors again-fp16/model.safetensors || complain "going on in fp16: another model"
cmp <(grep '"loss_scale"' fp16/checkpoint-4/state.json) <(grep '"loss_scale"' again-fp16/checkpoint-4/state.json) ||
    complain "going on in fp16: another loss scale"

# The device takes the best model back from best/: no evaluation follows the fourth step. It begins again after the steps
# that --fit-schedule timed.
steps=3
glue three --backend cuda_host --precision fp32 --eval-every 3
steps=4
glue three --backend cuda_host --precision fp32 --no-do-eval --override
says 'the model of step 3, the best by accuracy'
cmp three/model.safetensors three/best/model.safetensors || complain "another model than the best is published"
steps=0 CAIRN_TEST_FIT_STEP=25s glue fitted --backend cuda_host --precision fp16 --fit-schedule --max-time 10m --digest-steps 1
steps=$(sed -n 's/.*the same run again: --max-steps \([0-9]*\)$/\1/p' <<<"$output")
glue "fitted again" --backend cuda_host --precision fp16 --digest-steps 1
cmp <(losses fitted) <(losses "fitted again") || complain "--fit-schedule: other losses than those of --max-steps $steps"
cmp fitted/model.safetensors "fitted again/model.safetensors" || complain "--fit-schedule: another model"

# A device that is too small: the message has what would fit, and nothing was allocated.
CAIRN_TEST_CUDA_HOST_DEVICE=2
small=(--backend cuda_host --precision fp32 --do-train --model-config model/config.json --vocab model/vocab.txt
    --data-dir data --output-dir small)
expect 76 "$CAIRN_BINARY" glue "${small[@]}" --batch-size 256 --micro-batch-tokens step
says "more than the device's free memory of 2.0 MiB" 'It fits with ' ' MiB, with --recompute auto and ' '--micro-batch-tokens'
expect 76 "$CAIRN_BINARY" glue "${small[@]}" --batch-size 20 --max-seq-length 32 --micro-batch-tokens step
says ' MiB, with --recompute auto, or with'
CAIRN_TEST_CUDA_HOST_GPUS=0 expect 2 "$CAIRN_BINARY" glue "${small[@]}"
says 'local rank 0 needs GPU 0, but there are 0'
finish
