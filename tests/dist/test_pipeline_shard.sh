#!/usr/bin/env bash
# --shard optimizer in a pipeline: each holder of a tensor has the moments of its part alone, and every bit is as without
# it: of replicas, of chimera's two directions, of a word embedding that two stages hold, and after a resume elsewhere.
set -euo pipefail
# shellcheck source=tests/dist/ranks.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/ranks.sh"

make_tiny_bert tiny 4
small_data 110
glue=(glue --model-config tiny/config.json --vocab tiny/vocab.txt --data-dir data --do-train --batch-size 27
    --bucket-size 20KiB --max-grad-norm 0.05 --micro-batch-tokens 128 --schedule constant --warmup 0)

# sharded RANKS REFERENCE SCHEDULE...: a run of "${this[@]}" by this pipeline equals the reference
sharded() {
    local n=$1 like=$2
    shift 2
    rm -rf sharded
    start "$n" sharded "${this[@]}" --output-dir sharded --shard optimizer --pipeline "$@"
    ended 0
    same "$like" sharded 4
    [ "$(digests_of "$like")" = "$(digests_of sharded)" ] || complain "$*: other digests than $like"
}
digests_of() { grep -o '"grads_digest.*' "$1/metrics.jsonl"; }

# optimizer_mib LOG: the plan's region of the moments
optimizer_mib() { sed -n 's/^.* *optimizer  *\([0-9.]*\) MiB$/\1/p' "$1" | head -n 1; }

for case in "cpu nvlamb bf16" $(quick_or_deep "" "ref|adamw|fp32 ref|lamb|fp32"); do
    read -r backend optimizer wire <<<"${case//|/ }"
    this=("${glue[@]}" --backend "$backend" --optimizer "$optimizer" --wire "$wire" --max-steps 4 --digest-steps 2)
    start 2 whole "${this[@]}" --output-dir whole
    ended 0
    sharded 4 whole zb-h1 --stages 2 --stage-layers 3,1
    if [ -n "${CAIRN_TEST_DEEP:-}" ]; then
        sharded 4 whole interleaved --stages 4
        sharded 2 whole gpipe --stages 1
    fi
    sharded 2 whole chimera
    rm -r whole
done
start 2 whole "${this[@]}" --output-dir whole --pipeline chimera
ended 0
[ "$(optimizer_mib whole.0)" != "$(optimizer_mib sharded.0)" ] || complain "the plan's optimizer region did not shrink"

# all ranks are killed: other pipelines, sharded or not, resume from the parts in memory, and then from the checkpoint
this=("${glue[@]}" --backend ref --optimizer lamb --snapshot-steps 1 --save-every 0)
slowly
start 2 killed "${this[@]}" --output-dir killed --max-steps 100000 --pipeline chimera --shard optimizer
wait_until "${hang_limit:-600}" reached killed 4 || complain "killed does not get to its fourth step"
kill_all
quickly
at=$(($(losses killed | wc -l) + 2))
start 2 killed "${this[@]}" --output-dir killed --max-steps "$at" --override --pipeline gpipe --stages 1
ended 0
grep -q "resuming from the snapshot" killed.0 || complain "the run did not resume from memory"
start 2 unkilled "${this[@]}" --output-dir unkilled --max-steps "$at"
ended 0
same unkilled killed "$at"
for of in killed unkilled; do rm "$of/model.safetensors" "$of/run.json"; done
start 4 killed "${this[@]}" --output-dir killed --max-steps $((at + 2)) --override --pipeline 1f1b --stages 2 --shard optimizer
ended 0
grep -q "resuming from killed/checkpoint-$at" killed.0 || complain "the run on 4 ranks did not resume"
start 2 unkilled "${this[@]}" --output-dir unkilled --max-steps $((at + 2)) --override
ended 0
same unkilled killed $((at + 2))

# pretraining: both stages that hold the word embedding have moments of it, in the same parts
if "$CAIRN_BINARY" wiki --input "$source_dir/tasks/pretrain/sample/sample.xml" --output-dir text 2>/dev/null &&
    "$CAIRN_BINARY" vocab --input text --size 600 --output vocab.txt 2>/dev/null &&
    "$CAIRN_BINARY" shards --input text --vocab vocab.txt --output-dir shards --max-seq-length 64 2>/dev/null; then
    make_tiny_config tiny4.json 600 4
    this=(pretrain --data-dir shards --vocab vocab.txt --model-config tiny4.json --batch-size 24 --max-seq-length 64
        --micro-batch-tokens 256 --max-steps 4 --backend ref --do-train --bucket-size 20KiB --digest-steps 2)
    rm -rf whole
    start 2 whole "${this[@]}" --output-dir whole --pipeline gpipe --stages 1
    ended 0
    sharded 2 whole chimera
    [ -z "${CAIRN_TEST_DEEP:-}" ] || sharded 4 whole 1f1b --stages 2
else
    echo "without shards: pretraining is left out"
fi

finish
