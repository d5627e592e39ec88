#!/usr/bin/env bash
# run_glue.sh and eval.sh as their documentation shows them, on the sample, with a tiny model: paths are relative and
# have spaces in them.
set -euo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

make_tiny_bert "random bert"
mkdir "glue data"
for split in train dev_matched dev_mismatched; do head -n 241 "$sample/$split.tsv" >"glue data/$split.tsv"; done
# Weights as a user has them: a Hugging Face folder.
expect 0 "$CAIRN_BINARY" glue --model-config "random bert/config.json" --vocab "random bert/vocab.txt" \
    --data-dir "glue data" --do-train --max-steps 1 --output-dir "bert dir"
has_file "bert dir/model.safetensors" "bert dir/config.json" "bert dir/vocab.txt"

export BERT_DIR="bert dir" GLUE_DIR="glue data" RESULTS_DIR="my results"
small=(--max-steps 6 --threads 1)

# The baseline, then the optimised run, then the evaluation of what the last one left.
expect 0 "$scripts/run_glue.sh" --task MNLI --recompute none --batch-size 24 "${small[@]}"
out="my results/MNLI"
has_file "$out"/{model.safetensors,config.json,vocab.txt,metrics.jsonl,eval_results.json,eval_results.txt,report.html}
[ "$(losses "$out" | wc -l)" -eq 6 ] || complain "metrics.jsonl has not 6 steps"

expect 2 "$scripts/run_glue_multinode.sh" --ranks two --task MNLI --batch-size 48 "${small[@]}"
says "--ranks is 'two'; expected a whole number"
has_file "$out/run.json"
expect 0 "$scripts/run_glue.sh" --task MNLI --recompute half-attention --batch-size 48 "${small[@]}"
says "$out.1"
[ "$(losses "$out.1" | wc -l)" -eq 6 ] || complain "the baseline was lost"
grep -q '"batch-size": 48' "$out/run.json" || complain "the second run is not in $out"
cmp -s <(losses "$out") <(losses "$out.1") && complain "batch sizes 24 and 48 gave the same losses"

expect 0 "$scripts/eval.sh" --task MNLI --model "$RESULTS_DIR/MNLI" --threads 1
cmp "$out/eval_results.txt" "my results/MNLI-eval/eval_results.txt" ||
    complain "evaluating the saved model gives other figures than evaluating it after training"
[ "$(losses "$out" | wc -l)" -eq 6 ] || complain "eval.sh changed the run"

# The same command again: the same result, at once. Only the policy differs: a new run, the same losses.
expect 0 "$scripts/run_glue.sh" --task=MNLI --batch_size=48 --recompute half-attention "${small[@]}"
says "finished before" eval_accuracy
[ ! -e "$out.2" ] || complain "a repeated command moved its finished run away"
expect 0 "$scripts/run_glue.sh" --task MNLI --recompute full --batch-size 48 "${small[@]}"
has_file "$out.2/run.json"
cmp -s <(losses "$out") <(losses "$out.2") || complain "recompute changed the losses"

# The user's settings win: flags, environment, file.
expect 0 "$scripts/run_glue.sh" --output-dir "own out" --data-dir "glue data" --model "bert dir" "${small[@]}"
has_file "own out/run.json"
printf '{"output-dir": "from file", "do-eval": false, "max-steps": 1, "threads": 1}\n' >"run file.json"
expect 0 env CAIRN_DO_EVAL=false "$scripts/run_glue.sh" --config "run file.json"
has_file "from file/run.json"
[ ! -e "from file/eval_results.json" ] || complain "evaluated in spite of do-eval false"
expect 0 env CAIRN_OUTPUT_DIR="from environment" "$scripts/run_glue.sh" --no-do-eval --max-steps 1 --threads 1
has_file "from environment/run.json"
expect 0 "$scripts/run_glue.sh" --batch-size 7 --print-config
says '"batch-size": 7' '"model": "bert dir"' '"data-dir": "glue data"' '"output-dir": "my results/MNLI"' '"do-train": true'
has_file "$out/run.json" # nothing was moved

# HPCAI-2020's positional call: translated in one printed line, and run. Missing values are its defaults.
expect 0 env RESULTS_DIR=hpcai "$scripts/run_glue.sh" MNLI 16 5e-4 fp32 true 1 64 64 1.0 0.25 "bert dir" "${small[@]}"
says "run_glue.sh --task MNLI --batch-size 16 --learning-rate 5e-4 --precision fp32 --max-seq-length 64 --epochs 1.0 --warmup-proportion 0.25 --optimizer lamb --schedule poly:0.5-nvidia --model bert\\ dir --vocab bert\\ dir/vocab.txt --max-steps 6"
for setting in '"batch-size": 16' '"learning-rate": 0.0005' '"max-seq-length": 64' '"epochs": 1' '"warmup": "0.25"' '"optimizer": "lamb"'; do
    grep -q "$setting" hpcai/MNLI/run.json || complain "HPCAI's call lost $setting"
done
expect 0 "$scripts/run_glue.sh" MNLI 24 --precision fp32 --print-config
says '"learning-rate": 5e-05' '"batch-size": 24' '"schedule": "poly:0.5-nvidia"'
expect 2 "$scripts/run_glue.sh" MNLI 24 fp16 5e-5
says "value 3, learning_rate, is 'fp16'; expected a number. The order is task_name batch_size learning_rate precision"
expect 2 "$scripts/run_glue.sh" MNLI 24 5e-5 fp16 true 1 128 64 large 3.0 0.1
says "value 9, epochs, is 'large'"
expect 2 "$scripts/run_glue.sh" MNLI 24 5e-5 fp16 true 1 128 64 3.0 0.1 model another
says "expected at most 11 values" "found 12"
expect 2 "$scripts/run_glue_multinode.sh" MNLI 24
says "num_gpu, is 1; expected the number of all ranks"

# From another folder, through a copy of the scripts.
mkdir -p "a copy" deep/er
cp -r "$scripts" "a copy/"
(cd deep/er && RESULTS_DIR="../../my results" GLUE_DIR="../../glue data" BERT_DIR="../../bert dir" \
    "../../a copy/hpcai_scripts/eval.sh" --threads 1 >/dev/null 2>&1) || complain "eval.sh from elsewhere: exit code $?"

# Stopped by --max-time, and resumed. 1 s is what a save may take: one step each time.
slow=("$scripts/run_glue.sh" --output-dir slow --max-steps 9 --max-time 1s --threads 1 --no-do-eval)
expect 75 "${slow[@]}"
ls -d slow/checkpoint-* >/dev/null || complain "stopped without a checkpoint"
expect 75 "${slow[@]}"
says "resuming from"
[ "$(losses slow | wc -l)" -eq 2 ] || complain "$(losses slow | wc -l) steps in two runs"

# Wrong use, and other failures.
expect 2 "$scripts/run_glue.sh" --task MNLI --bach-size 3
says "nearest is --batch-size"
expect 2 "$scripts/run_glue.sh" --task NOSUCH
expect 2 env -u BERT_DIR "$scripts/run_glue.sh" --task MNLI
says BERT_DIR
expect 2 env -u GLUE_DIR "$scripts/eval.sh" --task MNLI
says GLUE_DIR
expect 2 "$scripts/run_glue.sh" --output-dir "own out" --batch-size 5 "${small[@]}" # another run in a folder that was named
says --batch-size
expect 1 "$scripts/eval.sh" --data-dir "no such folder" --output-dir x
says "no such folder"
expect 76 "$scripts/run_glue.sh" --output-dir x --memory-budget 1MB --max-steps 1
[ ! -e x/model.safetensors ] || complain "a refused run wrote a model"
finish
