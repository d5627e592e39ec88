#!/usr/bin/env bash
# --virtual-ranks on devices with memory of their own, over Gloo: fine-tuning and pretraining have the same bits on any
# number of ranks, sharded or not, with any --micro-batch-tokens and policy, and by a pipeline; the device's memory is
# the plan's.
set -euo pipefail
# shellcheck source=tests/dist/ranks.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../dist/ranks.sh"
export CAIRN_TEST_CUDA_HOST_DEVICE=64 CAIRN_TEST_CUDA_HOST_GPUS=3 CAIRN_SNAPSHOT_STEPS=0

make_tiny_bert tiny
sed -i 's/"hidden_size": 32/"hidden_size": 16/; s/"intermediate_size": 64/"intermediate_size": 32/' tiny/config.json
mkdir data
head -n 24 "$sample/train.tsv" >data/train.tsv
glue=(glue --model-config tiny/config.json --vocab tiny/vocab.txt --data-dir data --do-train --max-seq-length 12
    --grain-tokens 24 --learning-rate 1e-3 --max-grad-norm 0.05)
make_sample_text
make_tiny_config tiny.json
expect 0 "$CAIRN_BINARY" shards --input text --vocab vocab.txt --output-dir shards --max-seq-length 16 --dupe-factor 1
pretrain=(pretrain --model-config tiny.json --vocab vocab.txt --data-dir shards --max-seq-length 16 --grain-tokens 32
    --optimizer lamb)
common=(--backend cuda_host --comm gloo --batch-size 17 --virtual-ranks 6 --bucket-size 20KiB --max-steps 2 --digest-steps 1)

# run DIR N OPTION...: the task's run on N ranks
run() {
    start "$2" "$1" "${task[@]}" "${common[@]}" --output-dir "$1" "${@:3}"
    ended 0
    [ "$(json_number "$1/run.json" measured_peak_bytes)" = "$(json_number "$1/run.json" planned_peak_bytes)" ] ||
        complain "$1: $(grep peak_bytes "$1/run.json")"
}

# result DIR: what must be equal
result() {
    md5sum <"$1/model.safetensors"
    md5sum <"$1/checkpoint-2/optimizer.safetensors"
    sed -E 's/"(seq_per_s|tokens_per_s|peak_bytes|wall_s|trained_s)": [^,}]*//g' "$1/metrics.jsonl"
}

# same DIR
same() { cmp <(result one) <(result "$1") || complain "${task[0]}: $1 has other bits: $(diff <(result one) <(result "$1"))"; }

task=("${glue[@]}" --precision bf16)
run one 1
run two 2 --shard optimizer --recompute full --micro-batch-tokens 96
grep -q "micro-batch-tokens is without effect" two.0 || complain "two.0 does not say that a micro-batch is a grain"
same two
run three 3 --audit 100% --recompute lean
[ ! -e three/audit.jsonl ] || complain "an audit found a difference: $(cat three/audit.jsonl)"
same three

# Without the option the number of ranks changes bits: the comparisons above can fail.
run plain 2 --virtual-ranks 0
! cmp -s one/model.safetensors plain/model.safetensors || complain "the tree has the bits of two ranks' sums"

rm -r one two
task=("${pretrain[@]}" --precision fp32)
run one 1
run two 2 --recompute offload
same two

# A pipeline has the bits of as many virtual ranks as it has replicas; the word embedding's two gradients are summed, too.
common+=(--virtual-ranks 2)
rm -r one
run one 1
start 2 piped "${task[@]}" "${common[@]}" --output-dir piped --pipeline chimera --stages 2
ended 0
cmp <(losses one) <(losses piped) || complain "a pipeline has other losses than two virtual ranks"
cmp {one,piped}/model.safetensors || complain "a pipeline has other weights than two virtual ranks"

start 2 refused "${task[@]}" "${common[@]}" --comm nccl --output-dir refused
ended 2
grep -q "virtual-ranks: NCCL adds in an order of its own" refused.0 || complain "refused.0: $(cat refused.0)"
finish
