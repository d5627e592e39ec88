#!/usr/bin/env bash
# run_pretraining.sh as its documentation shows it, both phases, with a tiny model on the bundled dump, and its model
# fine-tuned; paths are relative and have spaces in them.
set -euo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

make_sample_text
make_tiny_config "tiny model.json"
expect 0 "$CAIRN_BINARY" shards --input text --vocab vocab.txt --max-seq-length 32 --eval-fraction 0.2 --output-dir "phase 1"
expect 0 "$CAIRN_BINARY" shards --input text --vocab vocab.txt --max-seq-length 64 --output-dir "phase 2"

export RESULTS_DIR="my results"
first="my results/pretrain-phase1" second="my results/pretrain-phase2"
small=(--batch-size 8 --max-steps 4 --threads 1)
one=(--phase 1 --data-dir "phase 1" --eval-dir "phase 1/eval" --model-config "tiny model.json" --vocab vocab.txt
    --max-seq-length 32)

# Phase 2 needs phase 1's model.
expect 2 "$scripts/run_pretraining.sh" --phase 2 --data-dir "phase 2" "${small[@]}"
says "phase 1's model" "$first"

expect 0 "$scripts/run_pretraining.sh" "${one[@]}" "${small[@]}"
has_file "$first"/{model.safetensors,config.json,vocab.txt,metrics.jsonl,eval_results.json,run.json,report.html}
grep -q '"preset": "bert-large-phase1"' "$first/run.json" || complain "not the recipe of phase 1"
grep -q '"optimizer": "lamb"' "$first/run.json" || complain "not the recipe's optimizer"
[ "$(losses "$first" | wc -l)" -eq 4 ] || complain "metrics.jsonl has not 4 steps"
says "--batch-size 8 in place of the preset's"

# Again: the same result at once. With another flag: a new run, the old one beside it.
expect 0 "$scripts/run_pretraining.sh" "${one[@]}" "${small[@]}"
says "finished before"
expect 0 "$scripts/run_pretraining.sh" "${one[@]}" "${small[@]}" --learning-rate 1e-3
says "$first.1"
has_file "$first.1/run.json" "$first/run.json"

# Phase 2: from that model, with its own recipe.
expect 0 "$scripts/run_pretraining.sh" --phase=2 --data-dir "phase 2" --max-seq-length 64 "${small[@]}"
says "$first"
grep -q "\"model\": \"$first\"" "$second/run.json" || complain "phase 2 did not start from phase 1's model"
grep -q '"preset": "bert-large-phase2"' "$second/run.json" || complain "not the recipe of phase 2"
grep -q '"hidden_size": 32' "$second/config.json" || complain "phase 2's model is of another size"
cmp -s "$first/model.safetensors" "$second/model.safetensors" && complain "phase 2 learned nothing"

# The GLUE commands can fine-tune its model.
expect 0 "$scripts/run_glue.sh" --task MNLI --model "$second" --data-dir "$sample" --max-steps 2 --threads 1 --no-do-eval
says "classifier"
has_file "my results/MNLI/model.safetensors"

# Sizes by name; flags win over the recipe.
expect 0 "$scripts/run_pretraining.sh" --phase 1 --data-dir x --model-config base --print-config
says '"preset": "bert-base-phase1"' '"model-config": "bert-base"' '"batch-size": 65536' '"max-steps": 7038'
expect 0 "$scripts/run_pretraining.sh" --phase 2 --data-dir x --model_config=large --model y --max_steps 9 --print-config
says '"preset": "bert-large-phase2"' '"max-seq-length": 512' '"max-steps": 9' '"model": "y"'
expect 0 env CAIRN_OUTPUT_DIR="own out" "$scripts/run_pretraining.sh" --phase 1 --preset bert-mini-original --print-config
says '"preset": "bert-mini-original"' '"output-dir": "own out"' '"optimizer": "adamw"'
has_file "$first/run.json" # nothing was moved

# Stopped by --max-time, and resumed. 1 s is what a save may take: one step each time.
long=(--batch-size 8 --max-steps 9 --max-time 1s --threads 1 --output-dir slow)
expect 75 "$scripts/run_pretraining.sh" "${one[@]}" "${long[@]}"
expect 75 "$scripts/run_pretraining.sh" "${one[@]}" "${long[@]}"
says "resuming from"
[ "$(losses slow | wc -l)" -eq 2 ] || complain "$(losses slow | wc -l) steps in two runs"

# Wrong use.
expect 2 "$scripts/run_pretraining.sh" --data-dir x --model-config base
says "--phase 1 or --phase 2"
expect 2 "$scripts/run_pretraining.sh" --phase 3 --data-dir x
expect 2 "$scripts/run_pretraining.sh" --phase 1 --data-dir x
says --model-config
expect 2 "$scripts/run_pretraining.sh" --phase 1 --model-config base
says --data-dir --input
expect 2 "$scripts/run_pretraining.sh" --phase 1 --model-config base --data-dri x
says "nearest is --data-dir"
expect 1 "$scripts/run_pretraining.sh" --phase 1 --model-config tiny --data-dir "no such folder" --vocab vocab.txt
says "no such folder"
finish
