#!/usr/bin/env bash
# Pipelines on devices with memory of their own, boundaries and sums through the hosts, and by NCCL's twin (nccl_twin.cc,
# which adds in rank order): every schedule has the losses, weights and moments of as many devices without a pipeline as
# it has replicas, to the last bit; it saves, resumes, evaluates, survives a lost rank and is profiled; the device's
# memory is the plan's.
set -euo pipefail
# shellcheck source=tests/dist/ranks.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../dist/ranks.sh"
export CAIRN_TEST_CUDA_HOST_DEVICE=64 CAIRN_TEST_CUDA_HOST_GPUS=4 CAIRN_TEST_CUDA_HOST_FAR=1

build=${CAIRN_TEST_BUILD_DIR:-$source_dir/build}
twin=$build/tests/cuda_host/nccl
nccl=nccl
if [ ! -e "$build/cairn_nccl.so" ] || [ ! -e "$twin/libnccl.so.2" ]; then
    echo "built without NCCL: all runs go through the hosts" && nccl=gloo
fi
export LD_LIBRARY_PATH=$twin

make_tiny_bert tiny 4
sed -i 's/"hidden_size": 32/"hidden_size": 16/; s/"intermediate_size": 64/"intermediate_size": 32/' tiny/config.json
mkdir data
head -n 14 "$sample/train.tsv" >data/train.tsv
for name in dev_matched dev_mismatched; do head -n 5 "$sample/$name.tsv" >"data/$name.tsv"; done
glue=(glue --model-config tiny/config.json --vocab tiny/vocab.txt --data-dir data --do-train --backend cuda_host
    --max-seq-length 8 --batch-size 9 --micro-batch-tokens 16 --bucket-size 20KiB --learning-rate 1e-3
    --max-grad-norm 0.05 --snapshot-steps 0)
this=("${glue[@]}" --precision fp32 --max-steps 2)

# same_losses DIR DIR STEPS: losses, weights and moments to the last bit
same_losses() {
    same "$@"
    cmp <(losses "$1") <(losses "$2") || complain "$2 has other losses than $1"
    [ "$(losses "$2" | wc -l)" -eq "$3" ] || complain "$2 has not $3 losses"
}

# piped COMM RANKS REFERENCE SCHEDULE...: a run of "${this[@]}" by this pipeline, in $out, has the reference's bits and its planned memory
piped() {
    local comm=$1 n=$2 like=$3 r
    shift 3
    out="$n of $* by $comm"
    start "$n" log "${this[@]}" --output-dir "$out" --comm "$comm" --pipeline "$@"
    ended 0
    same_losses "$like" "$out" 2
    [ "$comm" = gloo ] || grep -q 'boundaries and gradients go from GPU to GPU: NCCL 0.0.1' log.0 ||
        complain "$out: the log does not name NCCL"
    [ "$(json_number "$out/run.json" measured_peak_bytes)" = "$(json_number "$out/run.json" planned_peak_bytes)" ] ||
        complain "$out: $(grep peak_bytes "$out/run.json")"
    for ((r = 1; r < n; r++)); do
        grep -q 'peak memory \([0-9.]*\) MiB (planned \1 MiB)' "log.$r" || complain "$out: $(grep 'peak memory' "log.$r")"
    done
}

# plain RANKS OPTION...
plain() {
    start "$1" log "${this[@]}" --output-dir "plain$1" "${@:2}"
    ended 0
}

saves=(--save-steps 1 --keep 9 --digest-steps 1)
plain 1 --do-eval "${saves[@]}"
# Steps of five micro-batches and of two. `test.sh deep` takes each schedule both ways.
deep=${CAIRN_TEST_DEEP:-}
while read -r way schedule; do
    if [ -n "$deep" ] || [ "$way" = hosts ]; then
        # shellcheck disable=SC2086 # words
        piped gloo 2 plain1 $schedule --recompute none
    fi
    if [ -n "$deep" ] || [ "$way" = devices ]; then
        # shellcheck disable=SC2086 # words
        piped "$nccl" 2 plain1 $schedule --recompute full --do-eval
        cmp plain1/eval_results.txt "$out/eval_results.txt" || complain "$schedule: another evaluation"
    fi
done <<'END'
hosts gpipe
devices 1f1b --stages 4
hosts interleaved
devices zb-v
END
piped gloo 2 plain1 1f1b --recompute offload --poison # copies beside works
piped "$nccl" 2 plain1 zb-h1 --recompute x/host+qkv+o/host+y1+pre/host+g --poison # messages wait beside them
[ -z "$deep" ] || piped gloo 2 plain1 zb-h1 --recompute none
# evaluation without training
start 2 log glue --model plain1 --data-dir data --do-eval --backend cuda_host --precision fp32 --max-seq-length 8 \
    --output-dir alone --comm "$nccl" --pipeline 1f1b
ended 0
cmp plain1/eval_results.txt alone/eval_results.txt || complain "another evaluation without training"
rm -r alone
piped gloo 2 plain1 zb-v "${saves[@]}"
digests_of() { grep -o '"grads_digest.*' "$1/metrics.jsonl"; }
[ "$(digests_of plain1)" = "$(digests_of "$out")" ] || complain "zb-v has other digests"

# it resumes by another pipeline, and without one
staged=$out
for next in "2 --pipeline 1f1b --comm $nccl" "1"; do
    read -r n schedule <<<"$next"
    rm -r "$staged/checkpoint-2" "$staged/model.safetensors" "$staged/run.json"
    # shellcheck disable=SC2086 # words
    start "$n" staged "${this[@]}" --output-dir "$staged" "${saves[@]}" $schedule
    ended 0
    grep -q "resuming from .*checkpoint-1" staged.0 || complain "the run on $n ranks did not resume"
    same_losses plain1 "$staged" 2
done

# replicas, in bf16
this=("${glue[@]}" --precision bf16 --max-steps 2 --optimizer lamb)
plain 2 --comm gloo
piped "$nccl" 4 plain2 zb-h1 --stages 2 --stage-layers 3,1 --recompute full
piped "$nccl" 2 plain2 chimera --recompute none --profile 2
profiled=$out
piped "$nccl" 4 plain2 1f1b --stages 2 --shard optimizer
piped "$nccl" 2 plain2 chimera --shard optimizer
if [ -n "$deep" ]; then
    piped gloo 2 plain2 chimera --recompute full
    plain 4 --comm gloo # four terms, in other orders
    start 4 log "${this[@]}" --output-dir four --comm "$nccl" --pipeline chimera --stages 2
    ended 0
    near plain4 four
fi
profile=$profiled/profile
awk -F , 'NR > 1 && ($10 < $9 || $9 < end[$2] - 1e-6) { print "overlap: " $0; bad = 1 } NR > 1 { end[$2] = $10 } END { exit bad || NR < 20 }' \
    "$profile/work.csv" || complain "$profile/work.csv: works overlap, or are few"
calls=$(awk -F , 'NR > 1 { n += $4; if (!($5 > 0)) bad = 1 } END { print bad ? "bad" : n }' "$profile/kernels.csv")
sed -n 's/.*"pid": \([0-9]*\), "tid": 1, "ts": \([-0-9.]*\), "dur": \([0-9.]*\), .*"instr": .*/\1 \2 \3/p' "$profile/trace.json" |
    sort -n -k 1,1 -k 2,2 | awk '$1 == rank && $2 < end - 0.01 { print "overlap: " $0; bad = 1 } { rank = $1; end = $2 + $3 }
        END { exit bad || NR < 100 }' || complain "$profile/trace.json: instrs of one lane overlap, or are few"
[ "$(grep -c '"instr": ' "$profile/trace.json")" = "$calls" ] || complain "$profile: kernels.csv has $calls calls, the trace others"

# The state in memory is saved after a lost rank.
long=("${glue[@]}" --precision fp32 --max-steps 100000 --schedule constant --warmup 0 --save-every 0 --snapshot-steps 1)
start 2 lost "${long[@]}" --output-dir lost --pipeline 1f1b --comm "$nccl"
wait_until "$hang_limit" reached lost 4 || complain "lost does not get to its fourth step"
lose 1
if saved=$(compgen -G "lost/checkpoint-*"); then
    start 1 alone "${long[@]}" --output-dir alone --max-steps "${saved#*checkpoint-}"
    ended 0
    cmp "$saved/optimizer.safetensors" "alone/${saved#*/}/optimizer.safetensors" || complain "$saved: other moments"
else
    complain "nothing is saved in lost: $(tail -n 1 lost.0)"
fi

# A link of NCCL fails; CUDA would give lanes one queue, or wait for each launch.
if [ "$nccl" = nccl ]; then
    CAIRN_TEST_NCCL_BREAKS=1:20 start 2 broken "${long[@]}" --output-dir broken --pipeline 1f1b --comm nccl
    ended 77
    grep -q 'NCCL failed (in the background: words of the twin: the test broke it)' broken.0 broken.1 ||
        complain "NCCL's error is not reported: $(tail -n 1 broken.0)"
    CUDA_DEVICE_MAX_CONNECTIONS=1 start 2 queues "${long[@]}" --output-dir queues --pipeline 1f1b --comm nccl
    ended 2
    grep -q 'CUDA_DEVICE_MAX_CONNECTIONS=1: a pipeline between GPUs has 11 lanes' queues.0 || complain "$(tail -n 1 queues.0)"
    CUDA_LAUNCH_BLOCKING=1 start 2 blocking "${long[@]}" --output-dir blocking --pipeline 1f1b --comm nccl
    ended 2
    grep -q 'CUDA_LAUNCH_BLOCKING=1: a pipeline between GPUs begins messages' blocking.0 || complain "$(tail -n 1 blocking.0)"
fi

# pretraining: the two gradients of the word embedding on two devices, and on one; a stage's own gradients have fewer
# chunks than the norm of all
if "$CAIRN_BINARY" wiki --input "$source_dir/tasks/pretrain/sample/sample.xml" --output-dir text 2>/dev/null &&
    "$CAIRN_BINARY" vocab --input text --size 300 --output vocab.txt 2>/dev/null &&
    "$CAIRN_BINARY" shards --input text --vocab vocab.txt --output-dir shards --max-seq-length 32 2>/dev/null; then
    this=(pretrain --data-dir shards --vocab vocab.txt --model-config tiny/config.json --batch-size 6 --max-seq-length 32
        --micro-batch-tokens 64 --bucket-size 4KiB --max-steps 2 --backend cuda_host --precision fp32 --do-train --snapshot-steps 0)
    sed -i "s/\"vocab_size\": [0-9]*/\"vocab_size\": $(wc -l <vocab.txt)/; s/\"hidden_size\": 16/\"hidden_size\": 128/" tiny/config.json
    start 1 log "${this[@]}" --output-dir stage1 --pipeline gpipe --stages 1
    ended 0
    piped "$nccl" 2 stage1 1f1b
    [ -z "$deep" ] || piped gloo 2 stage1 zb-v
else
    echo "without shards: pretraining is left out"
fi

finish
