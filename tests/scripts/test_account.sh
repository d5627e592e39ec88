#!/usr/bin/env bash
# The memory that is planned is the memory that is used: BERT-Base in the real program, with all and with little kept.
set -euo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

available=$(awk '/^MemAvailable/ { print int($2 / 1024) }' /proc/meminfo)
[ "$available" -gt 6000 ] || { echo "skipped: $available MiB are free, 6000 are needed" && exit 0; }
"$CAIRN_BINARY" vocab --input "$sample/train.tsv" --size 600 --output vocab.txt 2>/dev/null
sed "s/\"vocab_size\": *[0-9]*/\"vocab_size\": 30522/" "$source_dir/bench/configs/bert-base.json" >config.json
# The vocabulary is filled up to the model's size: what counts here are the embeddings.
{ cat vocab.txt && seq 100001 $((130522 - $(wc -l <vocab.txt))); } >full.txt

for policy in none full; do
    # no save while training: the peak is a step's
    expect 0 "$CAIRN_BINARY" glue --model-config config.json --vocab full.txt --data-dir "$sample" --do-train --padded \
        --batch-size 8 --max-steps 2 --recompute $policy --save-every off --output-dir $policy
    read -r measured planned < <(sed -n 's/.*peak memory \([0-9.]*\) MiB (planned \([0-9.]*\) MiB).*/\1 \2/p' <<<"$output")
    echo "$policy: planned $planned MiB, measured $measured MiB"
    awk -v m="$measured" -v p="$planned" 'BEGIN { exit !(m <= p && m >= 0.97 * p) }' ||
        complain "--recompute $policy: planned $planned MiB, measured $measured MiB: expected at most the plan and 3 % less"
done
# Recompute gave memory back, and not one bit was lost for it.
cmp <(losses none) <(losses full) || complain "the losses differ"
finish
