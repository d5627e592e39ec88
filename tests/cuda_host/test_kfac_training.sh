#!/usr/bin/env bash
# K-FAC on devices with memory of their own: close to ref; the same bits launched one by one or replayed, stopped and
# resumed, and by every pipeline as data parallel on as many devices as it has replicas; over Gloo and NCCL's twin the
# same bits; snapshots hold the inverses.
set -euo pipefail
# shellcheck source=tests/dist/ranks.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../dist/ranks.sh"
export CAIRN_TEST_CUDA_HOST_DEVICE=64 CAIRN_TEST_CUDA_HOST_GPUS=4 CAIRN_TEST_CUDA_HOST_FAR=1
build=${CAIRN_TEST_BUILD_DIR:-$source_dir/build}

make_tiny_bert tiny 4
sed -i 's/"hidden_size": 32/"hidden_size": 16/; s/"intermediate_size": 64/"intermediate_size": 32/' tiny/config.json
mkdir data
head -n 14 "$sample/train.tsv" >data/train.tsv
for name in dev_matched dev_mismatched; do head -n 5 "$sample/$name.tsv" >"data/$name.tsv"; done
steps=$(quick_or_deep 3 5)
glue=(glue --model-config tiny/config.json --vocab tiny/vocab.txt --data-dir data --do-train --max-seq-length 8
    --batch-size 5 --micro-batch-tokens 16 --bucket-size 4KiB --learning-rate 1e-3 --snapshot-steps 0 --comm gloo
    --precision fp32 --kfac-interval 2 --max-steps "$steps")

# run RANKS DIR OPTION...
run() {
    start "$1" log "${this[@]}" --output-dir "$2" "${@:3}"
    ended 0
    [ "$(json_number "$2/run.json" measured_peak_bytes)" = "$(json_number "$2/run.json" planned_peak_bytes)" ] ||
        complain "$2: $(grep peak_bytes "$2/run.json")"
}

# one device, beside ref; statistics in every other step
this=("${glue[@]}" --backend cuda_host)
expect 0 "$CAIRN_BINARY" "${glue[@]}" --backend ref --output-dir ref
run 1 one --save-steps 1 --keep 9
near ref one
[ "$(grep -c '"kfac_failed": 0' one/metrics.jsonl)" -eq $(((steps + 1) / 2)) ] || complain "one device: not $(((steps + 1) / 2)) inversions"
mkdir resumed
cp -r one/checkpoint-$((steps - 1)) resumed
run 1 resumed --poison --recompute full
grep -q "step $((steps - 1)) of $steps" log.0 || complain "it does not resume from step $((steps - 1))"
same one resumed "$steps" kfac

# two devices, with a lag; pieces of a set are exchanged through the hosts
this+=(--kfac-lag 2)
run 1 lagged
run 2 two
equal_ranks log 2
near lagged two
if [ -e "$build/cairn_nccl.so" ] && [ -e "$build/tests/cuda_host/nccl/libnccl.so.2" ]; then
    unset CAIRN_TEST_CUDA_HOST_FAR # the twin reaches into the devices
    while read -r name flags; do
        # shellcheck disable=SC2086 # words
        LD_LIBRARY_PATH=$build/tests/cuda_host/nccl run 2 "$name" --comm nccl $flags
        same two "$name" "$steps" kfac
    done < <(printf '%s\n' nccl "$(quick_or_deep '' 'nccl-chimera --pipeline chimera')" | grep .)
    export CAIRN_TEST_CUDA_HOST_FAR=1
fi

# pipelines, filled: one replica and two
for schedule in $(quick_or_deep "zb-v" "gpipe 1f1b interleaved zb-h1 zb-v"); do
    run 2 "$schedule" --pipeline "$schedule"
    same lagged "$schedule" "$steps" kfac
    grep -q '"filled": [0-9.]*[1-9]' "$schedule/metrics.jsonl" || complain "$schedule: nothing ran in a gap"
done
run 2 chimera --pipeline chimera --recompute full --save-steps 2 --keep 9
same two chimera "$steps" kfac
rm -r chimera/checkpoint-$steps chimera/model.safetensors chimera/run.json
run 2 chimera
grep -q "step $((steps - 1)) of $steps" log.0 || complain "the pipeline's checkpoint is not resumed without it"
same two chimera "$steps" kfac

# A set that is larger than the weights: its pieces have room on the host.
sed 's/"intermediate_size": 32/"intermediate_size": 128/' tiny/config.json >tiny/wide.json
run 2 wide --pipeline chimera --model-config tiny/wide.json --bucket-size 1MiB --max-steps 1

# A lost rank: the state in memory, with the inverses, is saved.
this=("${glue[@]}" --backend cuda_host --schedule constant --warmup 0)
start 2 lost "${this[@]}" --output-dir lost --max-steps 100000 --save-every 0 --snapshot-steps 1 --pipeline 1f1b
wait_until "$hang_limit" reached lost 4 || complain "lost does not get to its fourth step"
lose 1
if saved=$(compgen -G "lost/checkpoint-*"); then
    run 1 alone --kfac-lag 2 --max-steps "${saved#*checkpoint-}"
    cmp "$saved/kfac.safetensors" "alone/${saved#*/}/kfac.safetensors" || complain "$saved: other inverses"
else
    complain "nothing is saved in lost: $(tail -n 1 lost.0)"
fi
finish
