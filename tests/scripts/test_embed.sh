#!/usr/bin/env bash
# `cairn embed`: every loss learns, and finds and scores what it learnt; stops, ranks and recomputation change no bit;
# messages.
set -uo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

# Questions with their answers and answers of another place; pairs that share place and goods, the place alone, nothing.
goods=(bread honey paper shoes lamps chairs tea soap) places=(Ebron Talvik Osmund Perla Quint Sarno)
mkdir pairs scores
echo anchor,positive,negative >pairs/train.csv
for i in "${!goods[@]}"; do
    for k in "${!places[@]}"; do
        what=${goods[i]} where=${places[k]} else=${goods[(i + 3) % 8]} far=${places[(k + 2) % 6]}
        there="the shop at the bridge has $what."
        echo "\"Who sells $what in $where?\",\"In $where, $there\",\"In $far, $there\"" >>pairs/train.csv
        for pair in "$what in $where\",\"score\": 1" "$else in $where\",\"score\": \"0.5\"" "$else in $far\",\"score\": 0"; do
            echo "{\"a\": \"Who sells $what in $where?\", \"b\": \"We buy $pair}" >>scores/train.jsonl
        done
    done
done
cp pairs/train.csv pairs/dev.csv
cp scores/train.jsonl scores/validation.jsonl
expect 0 "$CAIRN_BINARY" vocab --input pairs/train.csv --size 120 --output vocab.txt
make_tiny_config config.json 120
text=(--max-seq-length 24 --backend cpu --precision fp32 --threads 1 --snapshot-dir none)
run=("$CAIRN_BINARY" embed --model-config config.json --vocab vocab.txt "${text[@]}" --batch-size 9 --save-every off --do-train)
pairs=("${run[@]}" --data-dir pairs --text-columns "anchor,positive" --do-eval)

# ---- what is learnt ----

# learns LEAST FIGURE DIR OPTIONS...: the figure of the evaluation reaches so much.
learns() {
    expect 0 "${run[@]}" --do-eval --learning-rate 3e-3 --dropout 0 --max-steps 150 "${@:4}" --output-dir "$3"
    awk "BEGIN { exit !($(json_number "$3/eval_results.json" "eval_$2") >= $1) }" || complain "$3: $2 is below $1"
}
learns 0.9 recall_at_1 found --data-dir pairs --text-columns anchor,positive
says "48 rows of 2 texts" "dev: recall_at_1"
learns 0.9 recall_at_1 hard --data-dir pairs --text-columns anchor,positive,negative --symmetric --pooling cls
learns 0.9 spearmanr scored --data-dir scores --text-columns a,b --label-column score --loss cosine
learns 0.9 pearson scored --data-dir scores --text-columns a,b --label-column score --loss cosine
learns 0.3 mrr_at_10 triplets --data-dir pairs --text-columns anchor,positive,negative --loss triplet --margin 1

# The published model is as good, with the columns that its folder names, also as another folder and by two ranks.
expect 0 "$CAIRN_BINARY" convert --model found --output converted
for model in found converted; do
    expect 0 "$CAIRN_BINARY" embed --model $model --data-dir pairs --do-eval "${text[@]}" --eval-batch-size 7 --output-dir "again $model"
    cmp found/eval_results.txt "again $model/eval_results.txt" || complain "$model is evaluated otherwise"
done
for model in found triplets; do # the second finds some answers alone
    expect 0 "$CAIRN_BINARY" launch --ranks 2 -- embed --model $model --text-columns anchor,positive --data-dir pairs --do-eval "${text[@]}" --output-dir "two $model"
    cmp $model/eval_results.txt "two $model/eval_results.txt" || complain "two ranks evaluate $model otherwise"
done
awk "BEGIN { exit !($(json_number triplets/eval_results.json eval_recall_at_1) < 0.9) }" || complain "triplets find all"

# ---- the same bits ----

short=("${pairs[@]}" --max-steps 8 --learning-rate 1e-3 --eval-every 4 --final last)
expect 0 "${short[@]}" --output-dir whole
touch stop
expect 75 "${short[@]}" --output-dir parts --persist-file stop
expect 0 "${short[@]}" --output-dir parts --persist-file stop
says "resuming from"
cmp whole/model.safetensors parts/model.safetensors || complain "a resumed run trains another model"
says "the best by mrr_at_10"
expect 0 "${short[@]}" --output-dir full --recompute full
cmp whole/model.safetensors full/model.safetensors || complain "--recompute full trains another model"
expect 0 "${short[@]}" --output-dir parts
says "was finished before" "eval_mrr_at_10"
expect 2 "${short[@]}" --output-dir parts --batch-size 8
says "--batch-size was 9, is 8"
grep -q '"batch-size": 9,' whole/run.json || complain "run.json has another batch size than the command"
expect 0 "$CAIRN_BINARY" verify whole --steps 5-8
says "all agree"
virtual=("${short[@]:1}" --virtual-ranks 4 --grain-tokens 64 --micro-batch-tokens 64)
expect 0 "$CAIRN_BINARY" "${virtual[@]}" --output-dir virtual
expect 0 "$CAIRN_BINARY" launch --ranks 2 -- "${virtual[@]}" --micro-batch-tokens 128 --output-dir virtual-pair
cmp virtual/model.safetensors virtual-pair/model.safetensors || complain "two ranks train another model than one rank with four virtual ones"
diff <(losses virtual) <(losses virtual-pair) || complain "two ranks have other losses than one rank with four virtual ones"
expect 0 "$CAIRN_BINARY" verify virtual-pair --steps 5-8
# A wrong vector reaches the gradients of all ranks; only the one that computed it is blamed.
export CAIRN_TEST_FLIP="1 3 9 1 0 20"
expect 77 "$CAIRN_BINARY" launch --ranks 3 -- "${short[@]:1}" --audit 100% --output-dir audited
says "step 3: rank 1 on" "computed wrongly twice"
unset CAIRN_TEST_FLIP

# ---- plans ----

expect 0 "$CAIRN_BINARY" plan --task embed --model-config bert-tiny --batch-size 8 --text-columns a,b,c
says "batch 8 × 3 texts × 128 tokens"
expect 0 "$CAIRN_BINARY" plan --task embed --model-config bert-tiny --batch-size 8
says "batch 8 × 2 texts × 128 tokens"
# A size is searched with the texts of the rows, once, and is one of rows, as the table's.
plan=("$CAIRN_BINARY" plan --task embed --model-config bert-tiny --batch-size 8 --text-columns "a,b" --device h100 --memory-budget 900MiB --json)
for what in length layers; do
    expect 0 "${plan[@]}" --largest $what
    awk "BEGIN { n = $(json_number .stdout seq_per_s) * $(json_number .stdout step_s); exit !(n > 15.99 && n < 16.01) }" ||
        complain "--largest $what: a step has other texts than 8 × 2: $(cat .stdout)"
done
expect 0 "${plan[@]}"
most=$(grep '"name": "none"' .stdout | grep -o '"max_batch": [0-9]*')
expect 0 "${plan[@]}" --largest batch
[ "${most##* }" = "$(json_number .stdout size)" ] || complain "the largest batch is not the table's: $most, $(cat .stdout)"
expect 0 "${plan[@]}" --batch-size "${most##* }" --micro-batch-tokens step
grep '"name": "none"' .stdout | grep -q '"fits": true' || complain "the largest batch does not fit"
expect 2 "${plan[@]}" --loss cosine --symmetric
says "--symmetric is without effect on --loss cosine"
expect 2 "$CAIRN_BINARY" plan --task embed --model-config bert-tiny --batch-size 1
says "--batch-size 1"

# ---- messages ----

refused() {
    expect 2 "${@:2}" --output-dir refused
    says "$1"
}
refused "nothing to do" "$CAIRN_BINARY" embed --model found --data-dir pairs
refused "--text-columns anchor,positive" "${run[@]}" --data-dir pairs
refused "--loss triplet needs a negative" "${pairs[@]}" --loss triplet
refused "--loss cosine is of pairs" "${run[@]}" --data-dir pairs --text-columns a,b,c --loss cosine --label-column s
refused "give their column as --label-column" "${run[@]}" --data-dir pairs --text-columns a,b --loss cosine
refused "--label-column s is without effect on --loss infonce" "${run[@]}" --data-dir pairs --text-columns a,b --label-column s
expect 0 "${run[@]}" --data-dir scores --text-columns a,b --label-column score --do-eval --dry-run --output-dir refused
says "scores/train.jsonl: its column 'score' is not used" "each row counts as texts that belong together"
expect 2 "$CAIRN_BINARY" plan --task embed --model-config bert-tiny --loss triplet --text-columns a,b
refused "--margin is without effect on --loss infonce" "${pairs[@]}" --margin 1
refused "--batch-size 1" "${pairs[@]}" --batch-size 1
head -n 2 pairs/train.csv >pairs/one.csv && mkdir one uneven && mv pairs/one.csv one/train.csv && head -n 20 pairs/train.csv >uneven/train.csv
expect 1 "${run[@]}" --data-dir one --text-columns anchor,positive --output-dir refused
says "one/train.csv: has one row"
expect 0 "${run[@]}" --data-dir uneven --text-columns anchor,positive --dry-run --output-dir refused
says "one of the 19 rows, and learns nothing" "steps of 9 rows"
expect 0 "${run[@]}" --data-dir uneven --text-columns anchor,positive --batch-size 20 --dry-run --output-dir refused
says "steps of 20 rows: there are 19"
refused "leave it out: the ranks then share each step" "${pairs[@]}" --pipeline 1f1b --stages 2
expect 2 "$CAIRN_BINARY" plan --task embed --model-config bert-tiny --batch-size 8 --ranks 2 --pipeline all
refused "--eval-every evaluates while training" "${run[@]}" --data-dir pairs --text-columns anchor,positive --eval-every 2
refused "--data-dir DIR" "${run[@]}" --text-columns anchor,positive
expect 1 "${run[@]}" --data-dir scores --text-columns anchor,positive --output-dir refused
says "scores/train.jsonl" anchor
mkdir none
expect 1 "${run[@]}" --data-dir none --text-columns anchor,positive --output-dir refused
says "expected train.tsv, .csv or .jsonl"
expect 1 "${pairs[@]}" --data-dir one --output-dir refused
says "expected dev.tsv, .csv or .jsonl" "leave out --do-eval"
[ ! -e refused/model.safetensors ] || complain "a refused run wrote a model"
finish
