#!/usr/bin/env bash
# Pretraining on several ranks: uneven numbers of masked words, denominators of the whole step, and the sums of the
# evaluation in the order of one rank.
set -euo pipefail
# shellcheck source=tests/dist/ranks.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/ranks.sh"

make_sample_text
make_tiny_config tiny.json
expect 0 "$CAIRN_BINARY" shards --input text --vocab vocab.txt --output-dir shards --max-seq-length 64 --dupe-factor 1 \
    --eval-fraction 0.2
pretrain=(pretrain --model-config tiny.json --vocab vocab.txt --data-dir shards --eval-dir shards/eval --max-seq-length 64
    --batch-size 13 --eval-batch-size 8 --max-steps 6 --eval-every 3 --optimizer lamb --backend cpu --bucket-size 64KiB)

for n in 1 2 3; do
    start "$n" "log$n" "${pretrain[@]}" --output-dir "out$n"
    ended 0
    [ "$n" -eq 1 ] && continue
    near out1 "out$n"
    equal_ranks "log$n" "$n"
    [ "$(wc -l <"out$n/eval.jsonl")" -eq "$(wc -l <out1/eval.jsonl)" ] || complain "$n ranks: eval.jsonl"
done
has_file out1/eval.jsonl

for n in 1 2; do
    start "$n" "kfac$n" "${pretrain[@]}" --output-dir "kfac$n" --kfac-interval 2
    ended 0
done
near kfac1 kfac2
equal_ranks kfac2 2
start 1 learns "${pretrain[@]}" --output-dir learns --kfac-interval 5 --optimizer adamw --learning-rate 3e-3 --max-steps 40 \
    --eval-every 0 --warmup 4
ended 0
losses learns | awk 'NR <= 3 { first += $1 } NR > 37 { last += $1 } END { print first / 3, last / 3; exit !(last < 0.93 * first) }' ||
    complain "with K-FAC the loss does not fall"

start 3 shard "${pretrain[@]}" --output-dir shard3 --shard optimizer
ended 0
cmp out3/model.safetensors shard3/model.safetensors || complain "a sharded optimizer changed bits"

for n in 1 3; do
    start "$n" "eval$n" pretrain --model out2 --data-dir shards --eval-dir shards/eval --max-seq-length 64 --do-eval \
        --eval-batch-size 8 --backend cpu --output-dir "eval$n"
    ended 0
done
cmp eval1/eval_results.txt eval3/eval_results.txt || complain "3 ranks have another evaluation"
has_file eval3/eval_results.txt

# loss and accuracy are of all ranks
for key in mlm_accuracy nsp_loss; do
    paste <(sed -n "s/.*\"$key\": \([^,}]*\).*/\1/p" out1/metrics.jsonl) \
        <(sed -n "s/.*\"$key\": \([^,}]*\).*/\1/p" out3/metrics.jsonl) |
        awk '($1 - $2) ^ 2 > 1e-6 { bad = 1 } END { exit bad || NR != 6 }' || complain "$key of 3 ranks"
done

finish
