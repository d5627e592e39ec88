#!/usr/bin/env bash
# Every GLUE task from its files to its submission, a custom task, exact evaluation, and the best model.
set -euo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

real=${CAIRN_TEST_DATA:-$source_dir/../shared/data}/glue
make_tiny_bert tiny
glue=("$CAIRN_BINARY" glue --model-config tiny/config.json --vocab tiny/vocab.txt --threads 1 --max-steps 2)

# Files in each task's layout, a few rows each, in place of real data.
rows() { # rows N FORMAT: N lines; the format's %d are the row's number, its %s is 0 and 1 in turn
    local i line
    for ((i = 0; i < $1; i++)); do
        line=${2//%d/$i}
        printf '%b\n' "${line//%s/$((i % 2))}"
    done
}
mkdir -p made/{CoLA,SST-2,MRPC,STS-B,QQP,MNLI,QNLI,RTE,WNLI,AX}
for split in train dev; do
    rows 9 'gj04\t%s\t*\tthe red door %d' >made/CoLA/$split.tsv
    { printf 'sentence\tlabel\n' && rows 9 'a small table %d\t%s'; } >made/SST-2/$split.tsv
    { printf '\357\273\277Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n' && rows 9 '%s\t1\t2\tthe "door %d\tthe miner'; } >made/MRPC/$split.tsv
    { printf 'index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n' &&
        rows 9 '%d\tg\tf\ty\t1\ts\ts\tthe door %d\ta table\t%s.5'; } >made/STS-B/$split.tsv
    { printf 'id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n' && rows 9 '%d\t1\t2\tis it %d\twas it\t%s'; } >made/QQP/$split.tsv
    { printf 'index\tquestion\tsentence\tlabel\n' && rows 9 '%d\twho was it %d\tthe miner\t%s' |
        sed 's/\t0$/\tentailment/; s/\t1$/\tnot_entailment/'; } >made/QNLI/$split.tsv
    { printf 'index\tsentence1\tsentence2\tlabel\n' && rows 9 '%d\tthe miner %d\tthe door\t%s' |
        sed 's/\t0$/\tentailment/; s/\t1$/\tnot_entailment/'; } >made/RTE/$split.tsv
    { printf 'index\tsentence1\tsentence2\tlabel\n' && rows 9 '%d\tthe miner %d\tthe door\t%s'; } >made/WNLI/$split.tsv
done
{ printf 'index\tsentence\n' && rows 5 '%d\tthe red door %d'; } | tee made/CoLA/test.tsv >made/SST-2/test.tsv
{ printf 'index\t#1 ID\t#2 ID\t#1 String\t#2 String\n' && rows 5 '%d\t1\t2\tthe door\tthe miner %d'; } >made/MRPC/test.tsv
{ printf 'id\tquestion1\tquestion2\n' && rows 5 '%d\tis it %d\twas it'; } >made/QQP/test.tsv
{ printf 'index\tquestion\tsentence\n' && rows 5 '%d\twho %d\tthe miner'; } >made/QNLI/test.tsv
{ printf 'index\tsentence1\tsentence2\n' && rows 5 '%d\tthe miner %d\tthe door'; } |
    tee made/STS-B/test.tsv made/RTE/test.tsv made/WNLI/test.tsv >made/AX/diagnostic.tsv
for split in train dev_matched dev_mismatched; do head -n 41 "$sample/$split.tsv" >made/MNLI/$split.tsv; done
{ printf 'index\tsentence1\tsentence2\n' && rows 5 '%d\tthe miner %d\tthe door'; } |
    tee made/MNLI/test_matched.tsv >made/MNLI/test_mismatched.tsv

# task TASK DATA METRIC...: trains and evaluates, and checks the metrics
task() {
    local name=$1 data=$2 metric
    shift 2
    expect 0 "${glue[@]}" --task "$name" --data-dir "$data" --do-train --do-eval --output-dir "out $name"
    for metric; do
        grep -q "\"eval_$metric\"" "out $name/eval_results.json" || complain "$name: eval_results.json has no eval_$metric"
        grep -q "eval_$metric = " "out $name/eval_results.txt" || complain "$name: eval_results.txt has no eval_$metric"
    done
}
for data in made "$real"; do
    [ -d "$data" ] || { echo "skipped: real data ($data is not there)" && continue; }
    rm -rf out\ *
    while read -r name metrics; do
        [ -d "$data/$name" ] || continue
        # the first rows of large real files
        if [ "$data" != made ]; then
            rm -rf small && mkdir -p "small/$name"
            for file in "$data/$name"/*.tsv; do head -n 60 "$file" >"small/$name/${file##*/}"; done
            [ ! -e "small/$name/test.tsv" ] && [ "$name" = MNLI ] && cp made/MNLI/dev_mismatched.tsv "small/$name/"
            # shellcheck disable=SC2086
            task "$name" small $metrics
        else
            # shellcheck disable=SC2086
            task "$name" made $metrics
        fi
    done <<'END'
CoLA matthews_correlation
SST-2 accuracy
MRPC accuracy f1 combined_score
STS-B pearson spearmanr combined_score
QQP accuracy f1 combined_score
MNLI accuracy accuracy_mm
QNLI accuracy
RTE accuracy
WNLI accuracy
END
done

# The leaderboard's 11 files, each with a header and a row for every line of the test file.
for name in CoLA SST-2 MRPC STS-B QQP MNLI QNLI RTE WNLI; do
    [ -e "out $name/model.safetensors" ] || expect 0 "${glue[@]}" --task $name --data-dir made --do-train --output-dir "out $name"
    expect 0 "$CAIRN_BINARY" glue --task $name --data-dir made --model "out $name" --submission leaderboard --output-dir "predict $name"
done
expect 0 "$CAIRN_BINARY" glue --task AX --data-dir made --model "out MNLI" --submission leaderboard --output-dir "predict AX"
for file in AX CoLA MNLI-m MNLI-mm MRPC QNLI QQP RTE SST-2 STS-B WNLI; do
    has_file leaderboard/$file.tsv
    [ "$(wc -l <leaderboard/$file.tsv)" -eq 6 ] || complain "leaderboard/$file.tsv has not 5 rows and a header"
    head -n 1 leaderboard/$file.tsv | grep -qx $'index\tprediction' || complain "leaderboard/$file.tsv has another header"
done
[ "$(find leaderboard -type f | wc -l)" -eq 11 ] || complain "leaderboard does not hold 11 files"

# Evaluation is exact: the same bytes for any batch size and any number of threads.
for size in 1 7 128 1000; do
    expect 0 "$CAIRN_BINARY" glue --task MNLI --data-dir made --model "out MNLI" --do-eval --eval-batch-size $size --output-dir "eval $size"
    for file in eval_results.txt predictions_dev_matched.tsv predictions_dev_mismatched.tsv; do
        cmp "eval 1/$file" "eval $size/$file" || complain "$file differs with --eval-batch-size $size"
    done
done

# Training too: the same weights with any number of threads, in fp32 on every CPU (oneDNN's AMX kernels of bf16 may
# depend on their number).
for threads in 1 2 3; do
    expect 0 "${glue[@]}" --task MNLI --data-dir made --do-train --backend cpu --precision fp32 --threads $threads \
        --output-dir "threads $threads"
    cmp "threads 1/model.safetensors" "threads $threads/model.safetensors" || complain "--threads $threads changes weights"
done

# A custom task: columns by name, labels in the order given; and a regression.
mkdir own
{ printf 'verdict\tid\thypo\tpremise\n' && rows 12 'X%s\t%d\tthe door\tthe miner %d'; } | tee own/train.tsv >own/dev.tsv
expect 0 "${glue[@]}" --task custom --data-dir own --text-columns premise,hypo --label-column verdict --labels X1,X0 \
    --do-train --do-eval --output-dir "own out"
grep -q '"0": *"X1"' "own out/config.json" || complain "the labels are not in config.json in the order given"
sed 's/^X//' own/train.tsv >own/numbers.tsv && mv own/numbers.tsv own/train.tsv && cp own/train.tsv own/dev.tsv
expect 0 "${glue[@]}" --task custom --data-dir own --text-columns premise --label-column verdict --labels regression \
    --do-train --do-eval --output-dir "own numbers"
grep -q pearson "own numbers/eval_results.json" || complain "a regression has no Pearson correlation"
expect 1 "${glue[@]}" --task custom --data-dir own --text-columns premise,nothing --label-column verdict --labels 0,1 \
    --do-train --output-dir "own wrong"
says "own/train.tsv" nothing
expect 2 "${glue[@]}" --task custom --data-dir own --label-column verdict --do-train --output-dir "own wrong"
says --text-columns

expect 2 "${glue[@]}" --task custom --data-dir own --text-columns premise --labels 0,1 --do-train --output-dir "own wrong"
says --label-column
# Empty texts, and CSV in a file named .tsv.
mkdir many && printf 'text\tlabel\na\tx\n \ty\n' >many/train.tsv
expect 0 "${glue[@]}" --task custom --data-dir many --text-columns text --label-column label --do-train --output-dir "many blank"
says "many/train.tsv: 1 row has an empty text; the first is line 3"
tr '\t' ',' <many/train.tsv >csv && mv csv many/train.tsv
expect 1 "${glue[@]}" --task custom --data-dir many --text-columns text --label-column label --do-train --output-dir "own wrong"
says "many/train.tsv:1" "name the file .csv"
# A task of GLUE has TSV files, with a header or (CoLA) without one.
mkdir commas && printf 'gj04,1,,A fine day.\n' >commas/train.tsv
expect 1 "${glue[@]}" --task CoLA --data-dir commas --do-train --output-dir "own wrong"
says "commas/train.tsv:1: expected 4 columns, found 1; that looks like columns with commas between: this task's files have tabs"
# Prediction needs no labels; names of splits may have - or _.
cut -f3,4 own/dev.tsv >own/test.tsv
expect 0 "$CAIRN_BINARY" glue --task custom --data-dir own --text-columns premise,hypo --labels X1,X0 --model "own out" \
    --do-predict --output-dir "own predicted"
[ "$(wc -l <"own predicted/predictions_test.tsv")" -eq 13 ] || complain "a custom task's predictions are not 12 rows"
expect 0 "$CAIRN_BINARY" glue --task mnli --data-dir made --model "out MNLI" --do-eval --eval-splits dev-matched --output-dir "dev matched"
has_file "dev matched/predictions_dev_matched.tsv"

# Evaluation while training: the best model by the task's metric is kept beside the last.
expect 0 "$CAIRN_BINARY" glue --model-config tiny/config.json --vocab tiny/vocab.txt --threads 1 --task MNLI --data-dir made \
    --do-train --do-eval --max-steps 12 --eval-every 3 --learning-rate 1e-2 --output-dir best
has_file best/best/{model.safetensors,config.json,vocab.txt} best/model.safetensors best/eval.jsonl
[ "$(grep -c dev_matched best/eval.jsonl)" -ge 4 ] || complain "not evaluated every 3 of 12 steps"
top=$(sed -n '/dev_matched.*"accuracy"/s/.*"value": *\([0-9.]*\).*/\1/p' best/eval.jsonl | sort -g | tail -n 1)
expect 0 "$CAIRN_BINARY" glue --task MNLI --data-dir made --model best/best --do-eval --eval-splits dev_matched --output-dir "best again"
[ "$(json_number "best again/eval_results.json" eval_accuracy)" = "$top" ] || complain "best/ is not the best: $top"
finish
