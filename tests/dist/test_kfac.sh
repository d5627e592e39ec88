#!/usr/bin/env bash
# K-FAC on several ranks: factors are summed, each inverted by one rank and sent to all, so that all have the same
# weights; the losses are those of one rank to rounding; stopping and resuming changes no bit; what it does not go with
# is refused.
set -euo pipefail
# shellcheck source=tests/dist/ranks.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/ranks.sh"

make_tiny_bert tiny
small_data 110
glue=(glue --model-config tiny/config.json --vocab tiny/vocab.txt --data-dir data --do-train --backend ref
    --batch-size 27 --max-steps 7 --kfac-interval 3 --bucket-size 16KiB --save-every off)

for n in 1 2 3; do
    start "$n" "log$n" "${glue[@]}" --output-dir "out$n" --digest-steps 1
    ended 0
    [ "$n" -eq 1 ] || near out1 "out$n"
    [ "$n" -eq 1 ] || equal_ranks "log$n" "$n"
    [ "$(grep -c '"kfac_failed": 0' "out$n/metrics.jsonl")" -eq 3 ] || complain "$n ranks: not 3 inversions"
done

# another size of the exchanged pieces, and recomputation: the same bits
start 2 pieces "${glue[@]}" --output-dir pieces --bucket-size 1GiB --recompute full
ended 0
cmp out2/model.safetensors pieces/model.safetensors || complain "pieces or --recompute changed bits"

# on cpu: threads and levels change no bit
for flags in '--threads 1' '--threads 3' '--threads 2 --recompute every:2'; do
    read -ra some <<<"$flags"
    expect 0 "$CAIRN_BINARY" "${glue[@]}" --backend cpu --precision fp32 --output-dir "cpu$flags" "${some[@]}"
    cmp "cpu--threads 1/model.safetensors" "cpu$flags/model.safetensors" || complain "$flags changed bits"
done

# stopped after each step, with and without a lag
for lag in 0 2; do
    start 2 whole "${glue[@]}" --output-dir "whole$lag" --kfac-lag $lag
    ended 0
    start 2 steps "${glue[@]}" --output-dir "steps$lag" --kfac-lag $lag --save-steps 1 --keep 20
    ended 0
    for at in $(if [ "$lag" -eq 0 ]; then echo 4; else quick_or_deep 2 "2 4"; fi); do
        mkdir "from$lag$at"
        cp -r "steps$lag/checkpoint-$at" "from$lag$at"
        start 2 resumed "${glue[@]}" --output-dir "from$lag$at" --kfac-lag $lag
        ended 0
        grep -q "step $at of 7" resumed.0 || complain "does not resume from step $at"
        for file in model optimizer kfac; do
            cmp "whole$lag/checkpoint-7/$file.safetensors" "from$lag$at/checkpoint-7/$file.safetensors" ||
                complain "lag $lag, resumed at step $at: $file differs"
        done
    done
done

# a rank is lost while the inverses of step 7 are on their way: what the other one saves has none of them
this=("${glue[@]}" --kfac-lag 3 --max-steps 8 --schedule constant --warmup 0)
start 2 whole "${this[@]}" --output-dir whole3 --save-steps 5 --keep 9
ended 0
mkdir lost
cp -r whole3/checkpoint-5 lost
CAIRN_TEST_AT=inverses-1=kill start 2 lost.log "${this[@]}" --output-dir lost
code=0 && wait "${ranks[0]}" || code=$?
wait "${ranks[1]}" 2>/dev/null || true
[ "$code" -eq 77 ] || complain "rank 0 ended with $code instead of 77 after rank 1 was killed"
start 2 resumed "${this[@]}" --output-dir lost
ended 0
grep -q "step 6 of 8" resumed.0 || complain "does not resume from the step that the other rank saved"
for file in model optimizer kfac; do
    cmp {whole3,lost}/checkpoint-8/$file.safetensors || complain "after a lost rank: $file differs"
done

# the number of ranks may change
mkdir moved
cp -r steps0/checkpoint-4 steps0/metrics.jsonl moved
start 3 moved.log "${glue[@]}" --output-dir moved --kfac-lag 0
ended 0
near out1 moved
equal_ranks moved.log 3

# refused before the first step
refuse() {
    local why=$1
    shift
    expect 2 "$CAIRN_BINARY" "${glue[@]}" --output-dir refused "$@"
    says "$why"
    [ ! -e refused/metrics.jsonl ] || complain "a step was made: $*"
}
refuse '--kfac-interval with --precision fp16' --precision fp16
refuse '--kfac-interval with --precision tf32' --precision tf32
refuse '--kfac-interval with --padded' --padded
refuse '--kfac-interval with --shard optimizer' --shard optimizer
refuse "--kfac-lag '4': expected auto, or 0 to --kfac-interval, which is 3" --kfac-lag 4
refuse '--kfac-lag needs --kfac-interval' --kfac-interval 0 --kfac-lag 1
refuse '--kfac-damping needs --kfac-interval' --kfac-interval 0 --kfac-damping 0.1
expect 2 "$CAIRN_BINARY" "${glue[@]}" --output-dir steps0 --kfac-lag 0 --kfac-damping 0.1
says '--kfac-damping was 0.001, is 0.1'

finish
