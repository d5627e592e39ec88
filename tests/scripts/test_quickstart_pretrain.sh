#!/usr/bin/env bash
# quickstart.sh --task pretrain, with fewer steps than its default: every stage, and a falling loss. What it learns shows
# `test.sh deep`, by 200 steps.
set -euo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

make_sample_text # ends the test if the build lacks a library
export RESULTS_DIR="my results"
out="my results/quickstart-pretrain"
mkdir -p "$out/run" "$out/notes"
echo old >"$out/run/metrics.jsonl"
echo mine >"$out/notes/kept"

TIMEFORMAT='%R %U %S'
steps=$(quick_or_deep 50 200)
{ time expect 0 "$scripts/quickstart.sh" --task pretrain --max-steps "$steps"; } 2>times.txt
read -r wall user system <times.txt
printf '%s\n' "$output"
echo "$steps steps: $wall s, $user s of user and $system s of system time on $(nproc) cores"
# The default of 600 steps: under 3 minutes on 2 cores, in processor time.
awk -v t="$user" -v s="$system" -v n="$steps" 'BEGIN { exit !(600 / n * (t + s) <= 2 * 180) }' || complain "600 steps would take more than 2 x 180 s"

says "== wiki" "== vocab" "== shards" "== pretrain" "articles, sentences" "280, 2520" "held-out articles" \
    "masked words predicted right" "next sentences classified right"
has_file "$out"/{loss.svg,memory.svg,vocab.txt} "$out"/text/{part-00000.txt,manifest.json} "$out"/shards/manifest.json \
    "$out"/shards/eval/part-00000.hdf5 "$out"/run/{metrics.jsonl,eval.jsonl,eval_results.json,run.json,report.html} \
    "$out"/run/{model.safetensors,config.json,tokenizer_config.json,vocab.txt}
cmp -s "$out/notes/kept" <(echo mine) || complain "a file that was not quickstart's was removed"
[ "$(losses "$out/run" | wc -l)" -eq "$steps" ] || complain "not $steps steps"
grep -q '<svg' "$out/loss.svg" || complain "loss.svg is not a drawing"

# The loss falls, and on held-out articles the accuracy gets clearly above that of the commonest word (0.087).
first=$(losses "$out/run" | head -n 20 | awk '{ s += $1 } END { print s / NR }')
last=$(losses "$out/run" | tail -n 20 | awk '{ s += $1 } END { print s / NR }')
awk -v a="$first" -v b="$last" -v fall="$(quick_or_deep 0.4 1.5)" 'BEGIN { exit !(b < a - fall) }' || complain "the loss went from $first to $last only"
accuracy=$(json_number "$out/run/eval_results.json" eval_mlm_accuracy)
awk -v a="$accuracy" -v least="$(quick_or_deep 0.05 0.13)" 'BEGIN { exit !(a >= least) }' || complain "masked words predicted right: $accuracy"

# Evaluating the saved model gives the same metrics.
expect 0 "$CAIRN_BINARY" pretrain --do-eval --model "$out/run" --data-dir "$out/shards/eval" --max-seq-length 64 \
    --eval-batch-size 32 --output-dir again
cmp "$out/run/eval_results.txt" again/eval_results.txt || complain "the saved model gives other metrics"

expect 2 "$scripts/quickstart.sh" --task RTE
says "expected MNLI or pretrain"
finish
