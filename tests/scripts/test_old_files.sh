#!/usr/bin/env bash
# Files that version 0.1.0 wrote are read by this one: a checkpoint, a snapshot, shards of both layouts.
# tests/golden/v0.1.0.tar.gz holds them. A run on `ref` was cut after step 2 of 6; losses.jsonl has all six losses. The
# snapshot is of another run, killed after step 279; it names the folder /tmp/cairn-0.1.0/snap, hence that path here.
set -euo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

old=/tmp/cairn-0.1.0
mkdir "$old" 2>/dev/null || { echo "skipped: $old exists; remove it" && exit 77; }
trap 'rm -rf -- "$work" "$old"' EXIT
tar -xzf "$source_dir/tests/golden/v0.1.0.tar.gz" -C /tmp
cd -- "$old"
train=("$CAIRN_BINARY" glue --model-config config.json --vocab vocab.txt --data-dir data --do-train --backend ref
    --precision fp32 --batch-size 4 --max-seq-length 32 --learning-rate 1e-3 --threads 1)

# The checkpoint of step 2 continues to the same losses; another machine's libm may round the last digits otherwise.
# It had no bias correction, which was the default, and keeps that.
expect 2 "${train[@]}" --do-eval --max-steps 6 --output-dir run --bias-correction
says "--bias-correction was false, is true"
expect 0 "${train[@]}" --do-eval --max-steps 6 --output-dir run
says "checkpoint-2: --bias-correction=false stays"
[ "$(losses run | wc -l)" -eq 4 ] || complain "the run did not continue after step 2"
paste <(tail -n 4 losses.jsonl | sed 's/.*"loss": *\([^,}]*\).*/\1/') <(losses run) |
    awk '{ d = $1 - $2; if (d < 0) d = -d; if (NF != 2 || !(d < 1e-5)) bad = 1 } END { exit bad || NR != 4 }' ||
    complain "other losses than 0.1.0's: $(losses run | tr '\n' ' ')"
expect 0 "$CAIRN_BINARY" inspect --model run
says classifier.weight

# The snapshot: listed, its digests compared, and taken by the same command.
mv shm/snapshot "shm/cairn-$(id -u)-d60f53effadafcfa-1-0-0.snapshot" # named after the folder
expect 0 "$CAIRN_BINARY" snapshot list --snapshot-dir shm
says "$old/snap" "step 279" "1 rank"
expect 0 "${train[@]}" --schedule constant --warmup 1 --max-steps 281 --snapshot-steps 1 --snapshot-dir shm --save-every off \
    --override --output-dir snap
says "--bias-correction=false stays"
[ "$(losses snap | wc -l)" -eq 2 ] || complain "the run did not continue from the snapshot of step 279"

# Shards of both layouts hold the same sequences as before.
sed -i 's/"vocab_size": 80/"vocab_size": 150/' config.json
for layout in compact nvidia; do
    expect 0 "$CAIRN_BINARY" pretrain --model-config config.json --vocab v.txt --data-dir "shards-$layout" --backend ref \
        --precision fp32 --batch-size 4 --max-steps 2 --threads 1 --output-dir "pretrained-$layout"
    [ "$(losses "pretrained-$layout" | wc -l)" -eq 2 ] || complain "no training on the $layout shards"
done
finish
