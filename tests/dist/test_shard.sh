#!/usr/bin/env bash
# --shard optimizer: each rank holds the moments of its slice alone, and every bit is as without it: weights and both
# moments, for each optimizer and backend, also when a run resumes with or without it or with another number of ranks.
set -euo pipefail
# shellcheck source=tests/dist/ranks.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/ranks.sh"

make_tiny_bert tiny
small_data 90
glue=(glue --model-config tiny/config.json --vocab tiny/vocab.txt --data-dir data --do-train --batch-size 27
    --bucket-size 20KiB --max-grad-norm 0.05)

# optimizer_mib LOG: the plan's region of the moments
optimizer_mib() { sed -n 's/^.* *optimizer  *\([0-9.]*\) MiB$/\1/p' "$1" | head -n 1; }

for case in "ref adamw fp32 3" "cpu lamb bf16 2" $(quick_or_deep "" "ref|lamb|bf16|2 cpu|nvlamb|fp32|2 cpu|adamw|bf16|3 cpu|lamb|fp32|4"); do
    read -r backend optimizer wire n <<<"${case//|/ }"
    this=("${glue[@]}" --backend "$backend" --optimizer "$optimizer" --wire "$wire" --max-steps 4)
    start "$n" whole "${this[@]}" --output-dir whole
    ended 0
    start "$n" shard "${this[@]}" --output-dir shard --shard optimizer
    ended 0
    same whole shard 4
    equal_ranks shard "$n"
    rm -r whole shard
done

# the plan shows the saving
[ "$(optimizer_mib whole.0)" != "$(optimizer_mib shard.0)" ] || complain "the plan's optimizer region did not shrink"

# 2 steps of 5 sharded on 3 ranks, then whole on 3, then sharded on 2: the first two as one run without a stop
on=("${glue[@]}" --backend ref --optimizer lamb --max-steps 5 --save-steps 1 --keep 10)
start 3 once "${on[@]}" --output-dir once
ended 0
cp -r once stage && rm -r stage/checkpoint-[345] stage/model.safetensors stage/run.json
start 3 sharded "${on[@]}" --output-dir stage --shard optimizer
ended 0
grep -q "resuming from stage/checkpoint-2" sharded.0 || complain "the sharded run did not resume"
same once stage 5
rm -r stage/checkpoint-5 stage/model.safetensors stage/run.json
start 3 whole "${on[@]}" --output-dir stage
ended 0
grep -q "resuming from stage/checkpoint-4" whole.0 || complain "the run did not resume from a sharded one"
same once stage 5
rm -r stage/checkpoint-5 stage/model.safetensors stage/run.json
start 2 two "${on[@]}" --output-dir stage --shard optimizer
ended 0
near once stage

# apart N LOG COMMAND...: N ranks, each in a folder of its own, as on hosts without a shared disk
apart() {
    local n=$1 log=$2 r
    shift 2
    meet "$n"
    for ((r = 0; r < n; r++)); do
        mkdir -p "host$r"
        ln -sfn "$work/data" "$work/tiny" "host$r"
        cd "host$r"
        one "$r" "$n" "$work/$log" "$@"
        cd "$work"
    done
}

# no other rank sees rank 0's folder: one has none, one has another checkpoint of that name
mkdir host0 host1 host2 host2/run
for r in 0 1; do cp -r once "host$r/run" && rm -r "host$r"/run/checkpoint-[345] "host$r"/run/{model.safetensors,run.json}; done
cp -r once/checkpoint-1 host2/run/checkpoint-2
cp -r host0/run host0/kept
mv host1/run host1/copy
apart 3 alone "${on[@]}" --output-dir run --shard optimizer
ended 0
grep -q "2 of 3 ranks do not see run/checkpoint-2: rank 0 reads their parts" alone.0 || complain "rank 0 does not read for the others"
same once host0/run 5
# a copy of it is as good; of a damaged one rank 0 reads this rank's part
for damaged in no yes; do
    rm -r host0/run && cp -r host0/kept host0/run && cp -r host1/copy host1/run
    [ $damaged = no ] || printf x | dd of=host1/run/checkpoint-2/optimizer.safetensors bs=1 seek=9999 conv=notrunc status=none
    apart 3 copy "${on[@]}" --output-dir run --shard optimizer
    ended 0
    grep -q "1 of 3 ranks do not see run/checkpoint-2" copy.0 || complain "rank 1 does not read its copy"
    found=$(grep -c "optimizer.safetensors: bytes 0 to .* that were verified: damaged; rank 0 reads" copy.1 || true)
    [ $damaged:"$found" = no:0 ] || [ $damaged:"$found" = yes:1 ] || complain "$damaged: $(tail -n 2 copy.1)"
    same once host0/run 5
    rm -r host1/run
done

# all ranks are killed: the run resumes from the slices in memory, bit-exact
mem=("${glue[@]}" --backend ref --optimizer lamb --shard optimizer --schedule constant --warmup 0 --snapshot-steps 1
    --save-every 0)
slowly
start 2 killed "${mem[@]}" --output-dir killed --max-steps 100000
wait_until "${hang_limit:-600}" reached killed 4 || complain "killed does not get to its fourth step"
kill_all
quickly
at=$(($(losses killed | wc -l) + 2))
start 2 killed "${mem[@]}" --output-dir killed --max-steps "$at" --override
ended 0
grep -q "resuming from the snapshot" killed.0 || complain "the run did not resume from memory"
start 2 unkilled "${mem[@]}" --output-dir unkilled --max-steps "$at"
ended 0
same unkilled killed "$at"

# fp16 skips the same updates on all ranks
fp16=("${glue[@]}" --backend ref --precision fp16 --init-loss-scale 4294967296 --max-steps 4)
start 2 whole "${fp16[@]}" --output-dir half
ended 0
start 2 shard "${fp16[@]}" --output-dir halfshard --shard optimizer
ended 0
same half halfshard 4
grep -q "is skipped" whole.0 || complain "nothing overflowed at a loss scale of 2^32"

finish
