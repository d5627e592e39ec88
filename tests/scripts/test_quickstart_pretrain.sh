#!/usr/bin/env bash
# quickstart.sh --task pretrain, with fewer steps than its default: every stage, and a falling loss.
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
{ time expect 0 "$scripts/quickstart.sh" --task pretrain --max-steps 200; } 2>times.txt
read -r wall user system <times.txt
printf '%s\n' "$output"
echo "200 steps: $wall s, $user s of user and $system s of system time on $(nproc) cores"
# The default is three times as many steps: under 3 minutes on 2 cores, in processor time.
awk -v t="$user" -v s="$system" 'BEGIN { exit !(3 * (t + s) <= 2 * 180) }' || complain "three times that is more than 2 x 180 s"

says "== wiki" "== vocab" "== shards" "== pretrain" "articles, sentences" "280, 2520" "held-out articles" \
    "masked words predicted right" "next sentences classified right"
has_file "$out"/{loss.svg,memory.svg,vocab.txt} "$out"/text/{part-00000.txt,manifest.json} "$out"/shards/manifest.json \
    "$out"/shards/eval/part-00000.hdf5 "$out"/run/{metrics.jsonl,eval.jsonl,eval_results.json,run.json,report.html} \
    "$out"/run/{model.safetensors,config.json,tokenizer_config.json,vocab.txt}
cmp -s "$out/notes/kept" <(echo mine) || complain "a file that was not quickstart's was removed"
[ "$(losses "$out/run" | wc -l)" -eq 200 ] || complain "not 200 steps"
grep -q '<svg' "$out/loss.svg" || complain "loss.svg is not a drawing"

# The loss falls, and on held-out articles the accuracy is clearly above that of the commonest word (0.087).
first=$(losses "$out/run" | head -n 20 | awk '{ s += $1 } END { print s / NR }')
last=$(losses "$out/run" | tail -n 20 | awk '{ s += $1 } END { print s / NR }')
awk -v a="$first" -v b="$last" 'BEGIN { exit !(b < a - 1.5) }' || complain "the loss went from $first to $last only"
accuracy=$(json_number "$out/run/eval_results.json" eval_mlm_accuracy)
awk -v a="$accuracy" 'BEGIN { exit !(a >= 0.13) }' || complain "masked words predicted right: $accuracy"

# Evaluating the saved model gives the same metrics.
expect 0 "$CAIRN_BINARY" pretrain --do-eval --model "$out/run" --data-dir "$out/shards/eval" --max-seq-length 64 \
    --eval-batch-size 32 --output-dir again
cmp "$out/run/eval_results.txt" again/eval_results.txt || complain "the saved model gives other metrics"

expect 2 "$scripts/quickstart.sh" --task RTE
says "expected MNLI or pretrain"
finish
