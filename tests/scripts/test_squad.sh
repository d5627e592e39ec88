#!/usr/bin/env bash
# `cairn squad`: training, answers and scores of a small sample; the parts of a run that every task has.
set -uo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

cat >config.json <<'END'
{"vocab_size": 391, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128,
 "max_position_embeddings": 64, "type_vocab_size": 2, "initializer_range": 0.1}
END
golden=$source_dir/tests/golden/squad
mkdir data known questions
cp "$golden"/{train,dev}-v{1.1,2.0}.json data
cp "$golden/train-v1.1.json" known/train.json
cp "$golden/train-v1.1.json" known/dev.json
cut=(--max-seq-length 64 --doc-stride 40 --max-query-length 16 --backend cpu --precision fp32 --threads 1 --snapshot-dir none)
run=("$CAIRN_BINARY" squad --model-config config.json --vocab "$golden/vocab.txt" "${cut[@]}" --batch-size 16 --save-every off)
short=("${run[@]}" --data-dir data --do-train --do-eval --max-steps 6 --learning-rate 1e-3)

# What was learnt by heart is known.
expect 0 "${run[@]}" --data-dir known --do-train --do-eval --max-steps 200 --learning-rate 3e-3 --dropout 0 --output-dir known-out
says "known/train.json: 23 questions" "left out" "dev: exact_match"
exact=$(json_number known-out/eval_results.json eval_exact_match)
awk "BEGIN { exit !($exact >= 75) }" || complain "$exact per cent of the known answers"
grep -q '"BertForQuestionAnswering"' known-out/config.json || complain "config.json has another architecture"
expect 0 "$CAIRN_BINARY" inspect --model known-out
says qa_outputs.weight "(2, 64)"
grep -q pooler <<<"$output" && complain "the model has a pooler"

# The saved model gives the same answers, also through convert, in other batches, padded, and on two ranks.
same=("$CAIRN_BINARY" squad "${cut[@]}" --data-dir known --do-eval)
expect 0 "$CAIRN_BINARY" convert --model known-out --output converted
for way in "--model known-out" "--model converted --eval-batch-size 3"; do
    # shellcheck disable=SC2086 # words
    expect 0 "${same[@]}" $way --output-dir again
    for file in predictions nbest_predictions; do
        cmp known-out/$file.json again/$file.json || complain "$way: other $file.json"
    done
    cmp known-out/eval_results.txt again/eval_results.txt || complain "$way: other scores"
done
expect 0 "${same[@]}" --model known-out --padded --output-dir padded
[ "$(json_number padded/eval_results.json eval_exact_match)" = "$exact" ] || complain "padded sequences are answered otherwise"
expect 0 "$CAIRN_BINARY" launch --ranks 2 -- "${same[@]:1}" --model known-out --output-dir ranks
cmp known-out/nbest_predictions.json ranks/nbest_predictions.json || complain "two ranks give other answers"

# Stopped and resumed, and with recomputation: the same bits. Two ranks train.
expect 0 "${short[@]}" --output-dir whole --eval-every 3
has_file whole/best/model.safetensors whole/report.html whole/run.json
cmp whole/model.safetensors whole/best/model.safetensors || complain "another model than the best is published"
touch stop
expect 75 "${short[@]}" --output-dir parts --eval-every 3 --persist-file stop
expect 0 "${short[@]}" --output-dir parts --eval-every 3 --persist-file stop
says "resuming from"
cmp whole/model.safetensors parts/model.safetensors || complain "a resumed run trains another model"
cmp whole/predictions.json parts/predictions.json || complain "a resumed run gives other answers"
expect 0 "${short[@]}" --output-dir full --eval-every 3 --recompute full
cmp whole/model.safetensors full/model.safetensors || complain "--recompute full trains another model"
expect 0 "${short[@]}" --output-dir parts --eval-every 3
says "was finished before" "eval_f1"
expect 0 "${short[@]}" --output-dir parts --eval-every 3 --n-best-size 2
says "dev: exact_match" # other answers
cp -r data case
sed 's/Veldra is a small/VELDRA IS A SMALL/' data/dev-v1.1.json >case/dev-v1.1.json
expect 0 "${short[@]}" --data-dir case --output-dir parts --eval-every 3 --n-best-size 2
says "dev: exact_match" # the same pieces of another text
expect 0 "$CAIRN_BINARY" launch --ranks 2 -- "${short[@]:1}" --output-dir pair
has_file pair/predictions.json

# Virtual ranks: no bit depends on the number of ranks. Windows of one step differ in length.
virtual=("${short[@]:1}" --virtual-ranks 2 --grain-tokens 256 --micro-batch-tokens 256)
expect 0 "$CAIRN_BINARY" "${virtual[@]}" --output-dir virtual
expect 0 "$CAIRN_BINARY" launch --ranks 2 -- "${virtual[@]}" --output-dir virtual-pair --micro-batch-tokens 512
cmp virtual/model.safetensors virtual-pair/model.safetensors || complain "two ranks train another model than two virtual ones"
diff <(sed 's/.*"loss": \([^,]*\),.*/\1/' virtual/metrics.jsonl) <(sed 's/.*"loss": \([^,]*\),.*/\1/' virtual-pair/metrics.jsonl) || complain "two ranks have other losses than two virtual ones"

# The record of a run says which command made it.
expect 0 "$CAIRN_BINARY" verify full --steps 5-6
says "all agree"
expect 0 "$CAIRN_BINARY" squad --config whole/run.json --output-dir other --dry-run
expect 0 "$CAIRN_BINARY" sweep --vary max-seq-length=48,64 --dry-run --output-dir swept -- "${short[@]:1}"
says "2 runs"
expect 2 "$CAIRN_BINARY" sweep --vary seed=1,2 -- predict
says "runs of glue, squad, embed, pretrain and adapt" "found 'predict'"
expect 0 "$CAIRN_BINARY" plan --task squad --model-config bert-tiny --batch-size 8
says half-attention

# SQuAD 2.0: a threshold that nothing reaches, and one that everything does.
two=("${short[@]}" --version-2)
expect 0 "${two[@]}" --output-dir two --null-score-diff-threshold -100000
says "dev: exact"
has_file two/null_odds.json
[ "$(json_number two/eval_results.json eval_NoAns_exact)" = 100 ] || complain "an answer below the threshold"
[ "$(json_number two/eval_results.json eval_HasAns_exact)" = 0 ] || complain "no answer is right where there is one"
expect 0 "$CAIRN_BINARY" squad --model two --data-dir data --version-2 --do-eval --null-score-diff-threshold 100000 --output-dir two-all
says "as two says: --max-seq-length 64 --doc-stride 40 --max-query-length 16" "14 questions, 0 cut at 16 tokens"
grep -q '": ""' two-all/predictions.json && complain "no answer above the threshold"
has_file two-all/eval_results.json
for key in total HasAns_f1 NoAns_f1 best_exact best_exact_thresh best_f1 best_f1_thresh; do
    grep -q "\"eval_$key\"" two-all/eval_results.json || complain "no $key"
done

# Own questions need no answers.
printf '%s\n' '{"data": [{"paragraphs": [{"context": "The rope is 280 m long.", "qas": [{"id": "q1", "question": "How long?"}]}]}]}' >questions/test.json
expect 0 "$CAIRN_BINARY" squad --model known-out "${cut[@]}" --data-dir questions --do-predict --output-dir answered
says "test: answered (1 questions, 1 windows"
grep -q '"q1": "' answered/test_predictions.json || complain "no answer: $(cat answered/test_predictions.json)"
has_file answered/test_nbest_predictions.json
[ ! -e answered/eval_results.json ] || complain "scores without answers"

# Wrong use.
expect 2 "${run[@]}" --data-dir data
says "nothing to do: give --do-train, --do-eval or --do-predict"
expect 2 "${run[@]}" --data-dir data --do-train --max-seq-length 19
says "--max-seq-length 19 leaves no room" "give at least 20"
expect 2 "${run[@]}" --data-dir data --do-train --null-score-diff-threshold 1
says --version-2
expect 2 "${run[@]}" --data-dir data --do-train --doc-stride 46 --null-score-diff-threshold 1
says "--doc-stride 46: a window has room for 45 tokens" --version-2
mkdir old new
cp data/train-v1.1.json old
cp data/train-v2.0.json new
expect 2 "${run[@]}" --data-dir new --do-train
says "train-v2.0.json, but neither train-v1.1.json nor train.json" "give --version-2"
expect 2 "${run[@]}" --data-dir old --do-train --version-2
says "give --no-version-2"
expect 1 "${run[@]}" --data-dir old --do-eval --do-train
says "has neither dev-v1.1.json nor dev.json"
cp data/train-v2.0.json old/train-v1.1.json
expect 1 "${run[@]}" --data-dir old --do-train
says "old/train-v1.1.json: data[0].paragraphs[0], question veldra-007" "files of SQuAD 2.0 need --version-2"
printf '%s\n' '{"data": [{"paragraphs": [{"context": "280 m", "qas": [{"id": "q1", "question": "How long?",' \
    '"answers": [{"text": "280 m", "answer_start": "0"}]}]}]}]}' >old/train-v1.1.json
expect 1 "${run[@]}" --data-dir old --do-train
says "question q1: 'answer_start' is a text; expected a whole number from 0"
expect 2 "$CAIRN_BINARY" predict --model known-out --input config.json
says "answers questions" "cairn squad --do-predict"
expect 1 "$CAIRN_BINARY" glue --task RTE --model known-out --data-dir "$sample" --do-eval --max-seq-length 64
expect 2 "${run[@]}" --predict_file x
says "--do-predict test"
expect 0 "${run[@]}" --version_2_with_negative --print-config
grep -q '"version-2": true' .stdout || complain "Google's name of --version-2 is not taken"

finish
