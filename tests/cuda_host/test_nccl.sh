#!/usr/bin/env bash
# Two ranks train over NCCL's twin (nccl_twin.cc, which adds in rank order) on the host executor: the same bits as over
# Gloo, sharded or not; lost ranks and NCCL's errors are reported soon; impossible configurations are refused.
set -euo pipefail
# shellcheck source=tests/dist/ranks.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../dist/ranks.sh"

build=${CAIRN_TEST_BUILD_DIR:-$source_dir/build}
twin=$build/tests/cuda_host/nccl
if [ ! -e "$build/cairn_nccl.so" ] || [ ! -e "$twin/libnccl.so.2" ]; then
    echo "skipped: built without NCCL" && exit 77
fi
export LD_LIBRARY_PATH=$twin CAIRN_TEST_CUDA_HOST_DEVICE=64 CAIRN_TEST_CUDA_HOST_GPUS=2 CAIRN_TEST_NCCL_LOG=$work/environment

make_tiny_bert tiny
mkdir data
head -n 33 "$sample/train.tsv" >data/train.tsv
for name in dev_matched dev_mismatched; do head -n 9 "$sample/$name.tsv" >"data/$name.tsv"; done
glue=(glue --model-config tiny/config.json --vocab tiny/vocab.txt --data-dir data --do-train --backend cuda_host
    --precision fp32 --max-seq-length 16 --batch-size 6 --micro-batch-tokens 64 --bucket-size 20KiB --learning-rate 1e-3
    --max-grad-norm 0.05 --max-steps)
endless=("${glue[@]}" 100000 --comm nccl --schedule constant --warmup 0)
glue+=(4)

# same DIR DIR: losses and model to the last bit
same() {
    cmp <(losses "$1") <(losses "$2") || complain "$2 has other losses than $1"
    cmp "$1/model.safetensors" "$2/model.safetensors" || complain "$2 has other weights than $1"
    [ "$(losses "$2" | wc -l)" -gt 0 ] || complain "$2 made no step"
}

# sums DIR RANKS: how many sums of buckets the trace has, and that each lies within the profiled time
sums() {
    sed -n 's/.*"tid": 3, "ts": \([-0-9.]*\), "dur": \([0-9.]*\), "cat": "backward", "name": "reduce .*/\1 \2/p' \
        "$1/profile/trace-rank0.json" | awk '!($1 > 0 && $2 >= 0 && $1 + $2 < 600e6) { bad = 1 } END { print bad ? 0 : NR }'
}

# A step's last micro-batch runs in pieces, captured between the sums; a short epoch leaves rank 1 without a sequence.
start 2 gloo "${glue[@]}" --output-dir gloo --comm gloo --profile 1
ended 0
LD_LIBRARY_PATH=$twin:$build/tests/fakes/nvml start 2 nccl "${glue[@]}" --output-dir nccl --comm nccl --profile 1 --do-eval \
    --gpu-metrics 2ms
ended 0
for rank in 0 1; do # each has rows and samples of its own
    grep -q ",$rank\$" nccl/profile/kernels.csv || complain "kernels.csv has no row of rank $rank"
    file=nccl/gpu.csv
    [ $rank = 0 ] || file=nccl/gpu-rank$rank.csv
    grep -q "^[0-9.]*,$rank,[0-9]*,1[0-9]*,2619,650.125,,12345678901,none,7,0\$" "$file" || complain "$file: $(head -n 3 "$file")"
    grep -q "^{\"rank\": $rank, .*\"gpu\": \"host executor $rank\", .*\"throttle\": \"power-cap|heat\"" nccl/ranks.jsonl ||
        complain "ranks.jsonl: $(cut -c1-400 nccl/ranks.jsonl)"
done
same gloo nccl
equal_ranks nccl 2
grep -q 'gradients go from GPU to GPU: NCCL 0.0.1' nccl.0 || complain "the log does not name NCCL"
grep -q 'NCCL 0.0.1' nccl/checkpoint-4/state.json || complain "the fingerprint does not say NCCL"
cmp <(sort environment) - <<'END' || complain "NCCL was not given the network that was chosen"
rank 0: =lo AF_INET 0 -
rank 1: =lo AF_INET 0 -
END
[ "$(sums gloo)" -gt 3 ] || complain "the trace over Gloo has no sums, or at impossible times"
[ "$(sums nccl)" = "$(sums gloo)" ] || complain "the trace over NCCL has $(sums nccl) sums, over Gloo $(sums gloo)"

# Products: rank 1 takes rank 0's choices and keeps none, so the next run finds them and has the same bits.
CAIRN_TEST_PRODUCT_CHOICE=3 start 2 chosen "${glue[@]}" --output-dir chosen --comm gloo
ended 0
start 2 found "${glue[@]}" --output-dir found --comm gloo
ended 0
same chosen found
cmp -s gloo/model.safetensors chosen/model.safetensors && complain "other choices of products, and the same bits"
grep -q '^cairn products 1: host executor$' "$XDG_CACHE_HOME"/cairn/products-*.txt || complain "rank 0 kept no choice"
rm "$XDG_CACHE_HOME"/cairn/products-*.txt

# Sharded: the same on a device as on the host, and it resumes; with offload; auto takes NCCL.
lamb=("${glue[@]}" --optimizer lamb)
start 2 whole "${lamb[@]}" --output-dir whole --comm gloo
ended 0
NCCL_SOCKET_IFNAME=mine start 2 shard "${lamb[@]}" --output-dir shard --shard optimizer --recompute offload --save-steps 2 \
    --keep 9
ended 0
same whole shard
cmp whole/checkpoint-4/optimizer.safetensors shard/checkpoint-4/optimizer.safetensors || complain "sharded: other moments"
equal_ranks shard 2
grep -q 'from GPU to GPU' shard.0 || complain "--comm auto does not take NCCL"
grep -q '^rank 1: mine - ' environment || complain "the user's settings for NCCL were changed"
rm -r shard/checkpoint-4 shard/model.safetensors shard/run.json
start 2 staged "${lamb[@]}" --output-dir shard --shard optimizer --comm gloo
ended 0
grep -q 'resuming from shard/checkpoint-2' staged.0 || complain "the sharded run did not resume"
cmp whole/model.safetensors shard/model.safetensors || complain "sharded through the host's memory: other weights"

# One GPU for two ranks: refused before NCCL is called; --comm auto goes through the host; CAIRN_SHARED_GPU allows it.
for comm in nccl auto; do
    CAIRN_TEST_CUDA_HOST_GPUS=1 start 2 "one-$comm" "${glue[@]}" --output-dir "one-$comm" --comm $comm
    [ $comm = nccl ] && ended 2
    [ $comm = nccl ] || ended 0
    grep -q 'rank 0 on .* and rank 1 are on the same GPU (host executor 0). Start one rank per GPU' "one-$comm.0" ||
        complain "--comm $comm: two ranks on one GPU are not named"
done
CAIRN_TEST_CUDA_HOST_GPUS=1 start 2 one-gloo "${glue[@]}" --output-dir one-gloo --comm gloo
ended 0
grep -q 'ranks 0 and 1 are on the same GPU (host executor 0) and share' one-gloo.0 ||
    complain "--comm gloo: two ranks on one GPU are not named"
! grep -q 'same GPU' gloo.0 || complain "two ranks on two GPUs are said to share one"
grep -q "gradients go through the host's memory and Gloo" one-auto.0 || complain "auto does not say which way it took"
cmp gloo/model.safetensors one-auto/model.safetensors || complain "two ranks on one GPU: other weights"
CAIRN_SHARED_GPU=1 CAIRN_TEST_CUDA_HOST_GPUS=1 start 2 shared "${glue[@]}" --output-dir shared --comm nccl
ended 0
cmp gloo/model.safetensors shared/model.safetensors || complain "two ranks that share a GPU: other weights"
grep -q '^rank 1: =lo AF_INET 0 cairn-rank-1$' environment || complain "ranks that share a GPU have no NCCL_HOSTID"

# Refused: a backend without a GPU; --wire bf16.
start 2 cpu "${glue[@]/cuda_host/ref}" --output-dir cpu --comm nccl
ended 2
grep -q "the backend 'ref' has no GPU" cpu.0 || complain "--comm nccl without a GPU: $(tail -n 1 cpu.0)"
start 2 bf16 "${glue[@]}" --output-dir bf16 --comm nccl --wire bf16
ended 2
grep -q -e '--wire bf16: NCCL would also add in bf16' bf16.1 || complain "--wire bf16: $(tail -n 1 bf16.1)"

# A rank that is killed while the other waits for its sums; one whose NCCL fails.
start 2 killed "${endless[@]}" --output-dir killed
wait_until "$hang_limit" reached killed 3 || complain "killed does not get to its third step"
lose 1
grep -q 'lost rank 1 on .*closed its connections' killed.0 || complain "rank 1 is not named: $(tail -n 1 killed.0)"
grep -q 'Step [0-9]* of 100000 is saved in killed' killed.0 || complain "the survivor did not save: $(tail -n 1 killed.0)"

CAIRN_TEST_NCCL_BREAKS=1:40 start 2 broken "${endless[@]}" --output-dir broken
ended 77
grep -q 'rank 1 on .*: NCCL failed (in the background: words of the twin: the test broke it)' broken.1 ||
    complain "NCCL's error is not reported: $(tail -n 1 broken.1)"
grep -q 'lost rank 1 on .*its data connection broke' broken.0 || complain "rank 0 does not name the lost rank: $(tail -n 1 broken.0)"

CAIRN_TEST_NCCL_BREAKS=1:0 start 2 apart "${glue[@]}" --output-dir apart --comm nccl
ended 77
grep -q 'rank 1 on .*: NCCL failed (in the background: words of the twin' apart.1 ||
    complain "a rank that NCCL cannot connect does not say so: $(tail -n 1 apart.1)"
grep -q 'lost rank 1 on ' apart.0 || complain "rank 0 does not name the rank that is not connected: $(tail -n 1 apart.0)"
finish
