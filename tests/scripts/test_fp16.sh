#!/usr/bin/env bash
# --precision fp16 on plain loops: it learns as fp32 does; overflows are skipped, counted, and answered by the loss
# scale, which is state; what cannot be helped ends with a message.
set -euo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

make_tiny_bert bert
mkdir data
head -n 17 "$sample/train.tsv" >data/train.tsv
# All sequences in every batch, so that a skipped one makes no difference to what the next step sees. Flags win.
export CAIRN_BATCH_SIZE=16 CAIRN_LEARNING_RATE=5e-3 CAIRN_MAX_STEPS=30
run() { # CODE OUT FLAGS...
    local code=$1 out=$2
    shift 2
    expect "$code" "$CAIRN_BINARY" glue --data-dir data --model-config bert/config.json --vocab bert/vocab.txt \
        --do-train --backend ref --max-seq-length 32 --dropout 0 --output-dir "$out" "$@"
}
member() { sed -n "s/.*\"$2\": *\\([-+0-9.eE]*\\).*/\\1/p" "$1/metrics.jsonl"; }
# Every line of two columns of numbers, as far apart as $1 at most.
near() { awk -v most="$1" '{ d = $1 - $2; if (d < 0) d = -d; if (!(d <= most)) bad = 1; n++ } END { exit bad || n != 30 }'; }

# Near fp32, step by step, and learning.
run 0 fp32 --precision fp32
run 0 fp16 --precision fp16
grep -q '"precision": "f16"' fp16/run.json || complain "run.json does not say f16"
grep -q loss_scale fp32/metrics.jsonl fp32/checkpoint-30/state.json && complain "a loss scale in fp32"
paste <(losses fp32) <(losses fp16) | near 0.002 || complain "losses of fp16 are not near those of fp32"
losses fp16 | awk 'NR == 1 { first = $1 } END { exit !($1 < 0.6 * first) }' || complain "30 steps of fp16 did not learn"
cmp -s <(losses fp32) <(losses fp16) && complain "fp16 has the losses of fp32"
[ "$(member fp16 skipped | sort -u)" = 0 ] || complain "updates were skipped at the default scale"

# Policies and micro-batches: the same bits.
for policy in lean selective full every:2; do
    run 0 "policy $policy" --precision fp16 --recompute "$policy" --poison
    cmp "policy $policy/model.safetensors" fp16/model.safetensors || complain "$policy has other bits in fp16"
done

# Too large a scale to begin with: skipped until it fits, and nothing is lost.
run 0 huge --precision fp16 --init-loss-scale 4294967296
says "step 1: the gradient overflows at loss scale 4294967296; the update is skipped (1 so far)"
[ "$(losses huge | wc -l)" -eq 30 ] || complain "skipped updates took the place of steps"
[ "$(member huge step | uniq | wc -l)" -eq 30 ] || complain "a step's line is there twice"
skipped=$(member huge skipped | tail -n 1) scale=$(member huge loss_scale | tail -n 1)
[ "$skipped" -gt 0 ] && [ "$scale" -eq $((4294967296 >> skipped)) ] || complain "$skipped skips led to $scale"
[ "$(json_number huge/checkpoint-30/state.json batch)" -eq $((30 + skipped)) ] || complain "skipped batches are not consumed"
paste <(losses fp32) <(losses huge) | near 0.002 || complain "losses after skips are not near those of fp32"

# It grows, and a growth too far is taken back. The same in pieces: 1 s is what a save may take, so each run makes
# one step.
grows=(--precision fp16 --init-loss-scale 262144 --loss-scale-growth-interval 2 --recompute full --max-steps 12)
run 0 grows "${grows[@]}"
[ "$(member grows loss_scale | sed -n '2p;3p;5p' | tr '\n' ' ')" = "262144 524288 1048576 " ] || complain "no growth by two"
[ "$(member grows skipped | tail -n 1)" -gt 1 ] || complain "growth never overflowed"
pieces=0
for _ in $(seq 20); do
    code=0
    (failures=0 && run 75 pieces "${grows[@]}" --max-time 1s && exit $((failures > 0))) >/dev/null || code=$?
    [ "$code" -eq 0 ] || break
    pieces=$((pieces + 1))
done
[ "$pieces" -eq 12 ] || complain "the run was cut into $pieces pieces"
run 0 pieces "${grows[@]}" --max-time 1h
for file in model.safetensors checkpoint-12/model.safetensors checkpoint-12/optimizer.safetensors; do
    cmp "grows/$file" "pieces/$file" || complain "$file differs after $pieces stops"
done
for key in step loss grad_norm loss_scale skipped; do
    cmp <(member grows "$key") <(member pieces "$key") || complain "$key differs after $pieces stops"
done
[ "$(grep '"loss_scale"' grows/checkpoint-12/state.json)" = "$(grep '"loss_scale"' pieces/checkpoint-12/state.json)" ] ||
    complain "the saved loss scales differ"

# Divergence: forward values overflow whatever the scale is. It ends at the least, having saved the last good state.
run 1 diverges --precision fp16 --learning-rate 100 --warmup 0 --schedule constant
says "step 2: the gradient is not finite even at loss scale 1, the minimum (16 updates were skipped" \
    "the first value that is not finite is in tensor" "The last good state, step 1, is saved in diverges"
grep -q '"loss_scale": {"scale": 1, "good": 0}' diverges/checkpoint-1/state.json &&
    [ "$(json_number diverges/checkpoint-1/state.json skipped)" -eq 16 ] ||
    complain "the saved state has another loss scale: $(cat diverges/checkpoint-1/state.json)"

# A fixed scale skips nothing.
run 0 fixed --precision fp16 --loss-scale 1024
[ "$(member fixed loss_scale | sort -u)" = 1024 ] || complain "a fixed scale moved"
run 1 broken --precision fp16 --loss-scale 4294967296
says "step 1, at the fixed loss scale 4294967296 (--loss-scale dynamic would lower it)" "tensor 'dlogits'"

# A checkpoint without a loss scale is gone on with at the initial one.
run 75 old --precision fp32 --max-time 1s
run 2 old --precision fp16
says "--precision: was 'f32', is 'f16'"
run 0 old --precision fp16 --override
[ "$(member old loss_scale | sort -u)" = 65536 ] || complain "another scale after an fp32 checkpoint"

# Wrong use.
run 2 wrong --precision fp16 --loss-scale much
says "expected dynamic, or a fixed scale"
run 2 wrong --precision fp16 --loss-scale 0.5
run 2 wrong --precision fp32 --loss-scale 1024
says "only --precision fp16 has a loss scale"
expect 2 "$CAIRN_BINARY" glue --data-dir data --model-config bert/config.json --vocab bert/vocab.txt --do-train \
    --backend cpu --precision fp16 --output-dir wrong
says "--precision fp16: the backend 'cpu' cannot run it here" ref
run 0 "zero is dynamic" --precision fp16 --loss-scale 0
cmp "zero is dynamic/model.safetensors" fp16/model.safetensors || complain "--loss-scale 0 is not dynamic"
finish
