#!/usr/bin/env bash
# --virtual-ranks on devices with memory of their own, over Gloo and NCCL's twin: fine-tuning and pretraining have the
# same bits on any number of ranks, sharded or not, with K-FAC, with any --micro-batch-tokens and policy, and by a
# pipeline; a run goes on over the other transport; the device's memory is the plan's.
set -euo pipefail
# shellcheck source=tests/dist/ranks.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../dist/ranks.sh"
export CAIRN_TEST_CUDA_HOST_DEVICE=64 CAIRN_TEST_CUDA_HOST_GPUS=4 CAIRN_SNAPSHOT_STEPS=0
deep=${CAIRN_TEST_DEEP:-}
build=${CAIRN_TEST_BUILD_DIR:-$source_dir/build}
nccl=gloo # without the twin all runs go over Gloo
if [ -e "$build/cairn_nccl.so" ] && [ -e "$build/tests/cuda_host/nccl/libnccl.so.2" ]; then
    nccl=nccl
    export LD_LIBRARY_PATH=$build/tests/cuda_host/nccl
fi

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
common=(--backend cuda_host --batch-size 17 --virtual-ranks 12 --bucket-size 20KiB --max-steps 2 --digest-steps 1)

# run COMM N DIR OPTION...: the task's run on N ranks
run() {
    start "$2" "$3" "${task[@]}" "${common[@]}" --comm "$1" --output-dir "$3" "${@:4}"
    ended 0
    [ "$(json_number "$3/run.json" measured_peak_bytes)" = "$(json_number "$3/run.json" planned_peak_bytes)" ] ||
        complain "$3: $(grep peak_bytes "$3/run.json")"
    [ "$1 $2" = "nccl 1" ] || [ "$1" = gloo ] || grep -q "from GPU to GPU: NCCL" "$3.0" || complain "$3: not over NCCL"
}

# result DIR: what must be equal
result() {
    cat "$1"/model.safetensors "$1"/checkpoint-2/{optimizer,kfac}.safetensors 2>/dev/null | md5sum
    sed -E 's/"(seq_per_s|tokens_per_s|peak_bytes|wall_s|trained_s)": [^,}]*//g' "$1/metrics.jsonl"
}

# same DIR
same() { cmp <(result one) <(result "$1") || complain "${task[0]}: $1 has other bits: $(diff <(result one) <(result "$1"))"; }

task=("${glue[@]}" --precision bf16)
run gloo 1 one
run gloo 2 two --shard optimizer --recompute full --micro-batch-tokens 96 --save-steps 1 --keep 9
grep -q "micro-batch-tokens is without effect" two.0 || complain "two.0 does not say that a micro-batch is a grain"
same two
run $nccl 4 four # two branches each, of unequal size
same four
run $nccl 3 three --audit 100% --recompute lean --shard optimizer
[ ! -e three/audit.jsonl ] || complain "an audit found a difference: $(cat three/audit.jsonl)"
same three
export CAIRN_TEST_FLIP="1 2 weights 40 77" # a bit of a weight in one device's memory
start 2 damaged "${task[@]}" "${common[@]}" --comm gloo --output-dir damaged --audit 100% --save-steps 1 --keep 9
ended 78
grep -q "rank 1 on .*'weights' changed in memory since the last update, from element 0 on" damaged.0 ||
    complain "the damage is not found: $(tail -n 3 damaged.0)"
export CAIRN_TEST_FLIP="1 2 copies 40 77" # in the first computation: found and repeated, or harmless
run gloo 2 copied --audit 100%
same copied
unset CAIRN_TEST_FLIP
rm -r two/checkpoint-2 two/model.safetensors two/run.json
run $nccl 2 two
grep -q "resuming from two/checkpoint-1" two.0 || complain "the run did not resume"
! grep -q "not bit-exact" two.0 || complain "from Gloo to NCCL: $(grep 'not bit-exact' two.0)"
same two

# A rank whose device computes in another way would have other bits: refused.
meet 2
one 0 2 kinds "${task[@]}" "${common[@]}" --comm gloo --output-dir kinds
CAIRN_CUDA_TWO_PASSES=1 one 1 2 kinds "${task[@]}" "${common[@]}" --comm gloo --output-dir kinds
ended 2
grep -q "do not agree on backend.*two passes" kinds.0 || complain "devices of two kinds: $(tail -n 1 kinds.0)"

# A rank without memory for the first messages: all end before one waits for it.
for way in "" "--pipeline chimera --stages 2"; do
    [ $nccl = nccl ] || break
    meet 2
    # shellcheck disable=SC2086 # two options
    for rank in 0 1; do
        CAIRN_TEST_CUDA_HOST_LEAST=$((rank * 16)) one $rank 2 room "${task[@]}" "${common[@]}" --virtual-ranks 2 \
            --comm nccl --output-dir room $way
    done
    ended 76
    grep -q "the host executor has no 4 bytes" room.0 || complain "no memory for messages: $(tail -n 2 room.0 room.1)"
done

# Without the option the number of ranks changes bits: the comparisons above can fail.
run gloo 2 plain --virtual-ranks 0
! cmp -s one/model.safetensors plain/model.safetensors || complain "the tree has the bits of two ranks' sums"

rm -r one two four
task=("${glue[@]}" --precision fp32 --kfac-interval 2)
common+=(--virtual-ranks 4)
run gloo 1 one
run gloo 2 two
same two
if [ -n "$deep" ]; then
    run $nccl 4 four
    same four
fi

rm -rf one two four
task=("${pretrain[@]}" --precision fp32)
run gloo 1 one
run gloo 2 two --recompute offload
same two
if [ -n "$deep" ]; then
    run $nccl 4 four
    same four
fi

# A pipeline has the bits of as many virtual ranks as it has replicas; the word embedding's two gradients are summed, too.
for comm in $(quick_or_deep "" gloo) $nccl; do
    rm -rf piped
    run "$comm" 4 piped --pipeline chimera --stages 2 --shard optimizer
    cmp <(losses one) <(losses piped) || complain "a pipeline over $comm has other losses than four virtual ranks"
    cmp {one,piped}/model.safetensors || complain "a pipeline over $comm has other weights than four virtual ranks"
done
finish
