#!/usr/bin/env bash
# A short run of each task, from its files to its results, with what watches runs, and two ranks; the sanitizers' stage has no
# other run of the program.
set -euo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

make_tiny_bert tiny
small=(--max-steps 2 --batch-size 4 --max-seq-length 32 --threads 1 --snapshot-dir none)
mkdir -p glue squad
for split in train dev_matched dev_mismatched; do head -n 9 "$sample/$split.tsv" >"glue/$split.tsv"; done
expect 0 "$CAIRN_BINARY" glue --task MNLI --data-dir glue --model-config tiny/config.json --vocab tiny/vocab.txt --recompute full \
    --do-train --do-eval "${small[@]}" --output-dir glue-out
has_file glue-out/model.safetensors glue-out/eval_results.json
expect 0 "$CAIRN_BINARY" predict --model glue-out --input glue/dev_matched.tsv --text-columns sentence1,sentence2 --threads 1
[ "$(grep -c '"label"' <<<"$output")" -eq 8 ] || complain "not 8 labels: $output"

# What watches a run, and what several ranks do.
watched=("$CAIRN_BINARY" glue --data-dir glue --model-config tiny/config.json --vocab tiny/vocab.txt --do-train "${small[@]}")
expect 0 "${watched[@]}" --output-dir watched --profile 1 --digest-steps 1 --audit 100%
expect 0 "$CAIRN_BINARY" verify watched
expect 0 "$CAIRN_BINARY" report watched --proof --output-dir reported
expect 0 "$CAIRN_BINARY" sweep --output-dir swept --vary learning-rate=1e-4,1e-3 -- "${watched[@]:1}"
if [ -e "$(dirname -- "$CAIRN_BINARY")/cairn_gloo.so" ]; then
    export CAIRN_TEST_AGENT_SILENCE=1h
    launch=("$CAIRN_BINARY" launch --ranks 2 -- "${watched[@]:1}" --snapshot-dir "$work/memory" --snapshot-steps 1)
    mkdir memory
    expect 0 "${launch[@]}" --output-dir sharded --shard optimizer
    expect 0 "${launch[@]}" --output-dir piped --pipeline zb-h1 --kfac-interval 1
    has_file sharded/model.safetensors piped/model.safetensors
fi

cp "$source_dir"/tests/golden/squad/{train,dev}-v1.1.json squad
make_tiny_config squad.json 391
expect 0 "$CAIRN_BINARY" squad --data-dir squad --model-config squad.json --vocab "$source_dir/tests/golden/squad/vocab.txt" \
    --doc-stride 20 --max-query-length 10 --do-train --do-eval "${small[@]}" --output-dir squad-out
has_file squad-out/model.safetensors squad-out/predictions.json

make_sample_text
expect 0 "$CAIRN_BINARY" pretrain --input "$dump" --model-config tiny/config.json --eval-fraction 0.2 "${small[@]}" --output-dir pre-out
has_file pre-out/model.safetensors pre-out/eval_results.txt
head -n 200 text/part-* >own.txt
expect 0 "$CAIRN_BINARY" adapt --model pre-out --input own.txt --max-steps 2 --batch-size 4 --threads 1 --snapshot-dir none --output-dir adapted
has_file adapted/model.safetensors adapted/adapt.json

finish
