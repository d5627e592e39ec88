#!/usr/bin/env bash
# Own data for `--task custom`: TSV, CSV and JSON lines give the same run; labels come from the data and the model.
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

cat >config.json <<'END'
{"vocab_size": 14, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64,
 "max_position_embeddings": 32, "type_vocab_size": 2}
END
printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' good bad film plot a the , '"' line >vocab.txt
run=("$CAIRN_BINARY" glue --model-config config.json --vocab vocab.txt --backend cpu --threads 1 --snapshot-dir none
    --task custom --max-seq-length 24 --batch-size 8 --learning-rate 1e-3 --epochs 2)

# The same 40 rows: texts with commas, quotes and line breaks.
mkdir tsv csv json gz
for ((i = 0; i < 40; i++)); do
    word=good label=positive
    ((i % 3)) || { word=bad label=negative; }
    printf '%s\t%s\tthe "%s" film, a plot %d\n' "$label" "$i" "$word" "$i" >>tsv/rows
    printf '%s,%d,"the ""%s"" film, a plot %d"\r\n' "$label" "$i" "$word" "$i" >>csv/rows
    printf '{"text": "the \\"%s\\" film, a plot %d", "label": "%s"}\n' "$word" "$i" "$label" >>json/rows
done
for split in train dev; do
    { printf 'label\tid\ttext\n' && cat tsv/rows; } >tsv/$split.tsv
    { printf 'label,id,text\r\n' && cat csv/rows; } >csv/$split.csv
    cp json/rows json/$split.jsonl
    gzip -c csv/$split.csv >gz/$split.csv.gz
done
for form in tsv csv json gz; do
    expect 0 "${run[@]}" --data-dir $form --text-columns text --label-column label --do-train --do-eval --output-dir "out $form"
    says "2 labels, 'negative' (14), 'positive' (26)"
    cmp "out tsv/model.safetensors" "out $form/model.safetensors" || complain "$form trains another model than tsv"
    cmp "out tsv/eval_results.txt" "out $form/eval_results.txt" || complain "$form evaluates otherwise than tsv"
done
grep -q '"0": "negative"' "out csv/config.json" || complain "the labels of the data are not in config.json"

# Evaluation takes the labels of the model, and a file may have other columns than the training had.
{ echo '{"label": "positive", "text": "a good film"}'; } >json/dev.jsonl
expect 0 "$CAIRN_BINARY" glue --task custom --model "out csv" --data-dir json --text-columns text --label-column label --do-eval --max-seq-length 24 --output-dir "eval json"
has_file "eval json/eval_results.json"

# Whole numbers are classes in their order; numbers with a fraction are scores.
mkdir numbers scores
{ echo text,label && for ((i = 0; i < 22; i++)); do echo "a good film,$((i % 11))"; done; } >numbers/train.csv
expect 0 "${run[@]}" --data-dir numbers --text-columns text --label-column label --do-train --output-dir "out numbers"
says "11 labels, '0' (2), '1' (2), '2' (2), '3' (2), '4' (2), '5' (2), '6' (2), '7' (2), '8' (2), '9' (2), '10' (2)"
{ echo text,label && for ((i = 0; i < 22; i++)); do echo "a good film,$i.5"; done; } >scores/train.csv
cp scores/train.csv scores/dev.csv
expect 0 "${run[@]}" --data-dir scores --text-columns text --label-column label --do-train --do-eval --output-dir "out scores"
says "so they are scores"
grep -q '"problem_type": "regression"' "out scores/config.json" || complain "a regression is not in config.json"
expect 0 "$CAIRN_BINARY" glue --task custom --model "out scores" --data-dir scores --text-columns text --label-column label --do-eval --max-seq-length 24 --output-dir "eval scores"
grep -q pearson "eval scores/eval_results.json" || complain "the model's config.json does not make a regression"

# Several labels at once, as a JSON array or with commas between; --labels may name more than the data has.
mkdir several
for ((i = 0; i < 40; i++)); do
    labels=() word=line
    ((i % 2)) && labels+=('"odd"') && word="bad $word"
    ((i % 3)) || { labels+=('"third"') && word="good $word"; }
    list=$(IFS=,; echo "${labels[*]}")
    printf '{"text": "%s", "tags": [%s]}\n' "$word" "$list" >>several/train.jsonl
    printf '"%s","%s"\n' "$word" "${list//\"/}" >>rows.csv
done
{ echo text,tags && cat rows.csv; } >several/dev.csv
tags=("${run[@]}" --data-dir several --text-columns text --label-column tags)
expect 0 "${tags[@]}" --multi-label --do-train --do-eval --epochs 60 --output-dir "out several"
says "2 labels, 'odd' (20), 'third' (14)"
grep -q '"problem_type": "multi_label_classification"' "out several/config.json" || complain "several labels are not in config.json"
[ "$(json_number "out several/eval_results.json" eval_accuracy)" = 1 ] || complain "several labels were not learnt: $(cat "out several/eval_results.json")"
grep -q '"eval_f1": *1' "out several/eval_results.json" || complain "no F1 of several labels"
cut -d'"' -f2 several/dev.csv | head -n 4 | sed 1s/.*/text/ >several/test.csv
expect 0 "$CAIRN_BINARY" glue --task custom --model "out several" --data-dir several --text-columns text --max-seq-length 24 --do-predict --output-dir "predict several"
grep -q "odd" "predict several/predictions_test.tsv" || complain "no label predicted: $(cat "predict several/predictions_test.tsv")"
expect 1 "${tags[@]}" --multi-label --labels odd,even --do-train --output-dir "out wrong"
says "several/train.jsonl:1: label 'third' is unknown; expected 'odd', 'even'. Mend the row, or name all labels"
mkdir vectors
printf '{"text": "good line", "tags": [%s]}\n' 0,1 1,1 >vectors/train.jsonl
expect 0 "$CAIRN_BINARY" glue --task custom --model "out several" --data-dir vectors --text-columns text --label-column tags --max-seq-length 24 --multi-label --do-train --max-steps 1 --output-dir "out vectors"
says "the labels are vectors of 0 and 1, so their names are those of out several"
expect 2 "${tags[@]}" --task MNLI --do-train --output-dir "out wrong"
says "--text-columns is an option of --task custom, found --task MNLI"
expect 2 "${tags[@]}" --multi-label --labels regression --do-train --output-dir "out wrong"
says "--multi-label and --labels regression"

# Smoothed labels raise the loss of training, not that of evaluation; the cosine runs.
first_loss() { sed -n '1s/.*"loss": *\([0-9.]*\).*/\1/p' "$1/metrics.jsonl"; }
base=("${run[@]}" --data-dir tsv --text-columns text --label-column label --do-train --do-eval)
expect 0 "${base[@]}" --label-smoothing 0.3 --output-dir "out smooth"
[ "$(first_loss "out smooth")" != "$(first_loss "out tsv")" ] || complain "--label-smoothing changes nothing"
expect 0 "${base[@]}" --schedule cosine --output-dir "out cosine"
expect 2 "${run[@]}" --data-dir scores --text-columns text --label-column label --do-train --label-smoothing 0.1 --output-dir "out wrong"
says --label-smoothing

# Early stopping: the task is learnt at once, so no later evaluation is better.
expect 0 "${base[@]}" --learning-rate 5e-3 --epochs 40 --eval-every 5 --patience 2 --output-dir "out patient"
steps=$(wc -l <"out patient/metrics.jsonl") best=$(json_number "out patient/best/best.json" step)
[ "$steps" -eq "$best" ] && [ "$steps" -lt 200 ] || complain "--patience 2: $steps steps, the last of the best at $best"
says "the model of step $best, the last and the best by accuracy ($(printf %.4f "$(json_number "out patient/best/best.json" metric)")), is published"
expect 0 "${base[@]}" --learning-rate 5e-3 --epochs 40 --eval-every 5 --patience 2 --output-dir "out patient"
says "finished"
expect 0 "$CAIRN_BINARY" predict --model "out patient/best" --input tsv/dev.tsv
says "as out patient/best says: --max-seq-length 24 --text-columns text"
grep -q "\"best\": \"[0-9.]* at step $best\"" "out patient/run.json" || complain "run.json lacks the best evaluation: $(grep best "out patient/run.json")"
grep -q "<td>best</td>" "out patient/report.html" || complain "report.html lacks the best evaluation"
expect 2 "${base[@]}" --patience 2 --output-dir "out wrong"
says --eval-every

# What chooses the best model. eval.jsonl has the figures of each evaluation: the model is that of the best one, of equal
# ones the last.
chosen() { # chosen METRIC HIGHEST|LOWEST
    local order=g
    [ "$2" = HIGHEST ] || order=gr
    expect 0 "${base[@]}" --epochs 3 --eval-every 2 --best-by "$1" --output-dir "out by $1"
    step=$(sed -n "s/.*\"step\": \([0-9]*\),.*\"$1\", \"value\": \([-0-9.e]*\)}/\2 \1/p" "out by $1/eval.jsonl" | sort -k1,1$order -k2,2n | tail -n 1 | cut -d' ' -f2)
    [ "$(json_number "out by $1/best/best.json" step)" = "$step" ] || complain "--best-by $1 kept step $(json_number "out by $1/best/best.json" step), not $step"
}
chosen macro_f1 HIGHEST
says "best by macro_f1"
chosen loss LOWEST
expect 2 "${base[@]}" --eval-every 2 --best-by pearson --output-dir "out wrong"
says "--best-by is 'pearson'; expected one of accuracy, f1, matthews_correlation, macro_f1, weighted_f1, loss"
expect 2 "${base[@]}" --best-by loss --output-dir "out wrong"
says "--best-by chooses among evaluations while training"
expect 0 "${base[@]}" --eval_strategy epoch --metric_for_best_model eval_loss --print-config
says '"best-by": "loss"'

# A correlation with constant labels is NaN, which is never better: the log says why, no best/ is kept, not that of an
# earlier run either, and training ends. Results are JSON with null.
mkdir constant varied
sed '1~3s/good/bad/' scores/dev.csv | tee varied/train.csv >varied/dev.csv
cp varied/train.csv constant/train.csv
sed '2,$s/,.*/,3.5/' varied/dev.csv >constant/dev.csv
constant=("${run[@]}" --text-columns text --label-column label --do-train --do-eval --eval-every 1 --patience 2 --output-dir "out constant")
expect 0 "${constant[@]}" --data-dir varied
has_file "out constant/best/best.json"
expect 0 "${constant[@]}" --data-dir constant --resume never
says "nan: the correlation is undefined where every label is the same, here 3.5" "training ends: --patience 2" "warning: no evaluation gave a number: out constant/best has no model of this run"
[ "$(wc -l <"out constant/metrics.jsonl")" = 2 ] || complain "NaN ends training after $(wc -l <"out constant/metrics.jsonl") steps, not 2"
[ ! -e "out constant/best" ] || complain "a NaN is the best result: $(cat "out constant/best/best.json")"
grep -q '"eval_pearson": null' "out constant/eval_results.json" || complain "a NaN is not null: $(cat "out constant/eval_results.json")"
expect 0 "${constant[@]}" --data-dir constant
says "finished"
expect 0 "$CAIRN_BINARY" report "out constant" "out constant" --output-dir compared
[ "$(grep -c '^dev pearson' <<<"$output")" = 1 ] || complain "a row of NaN is repeated: $output"

# The first rows of the dev split, as run_glue.py's flag takes them.
head -n 4 varied/dev.csv >constant/dev.csv
expect 0 "${run[@]}" --data-dir constant --text-columns text --label-column label --do-train --do-eval --output-dir "out three"
expect 0 "${run[@]}" --data-dir varied --text-columns text --label-column label --do-train --do-eval --max_eval_samples 3 --output-dir "out first"
cmp "out three/eval_results.txt" "out first/eval_results.txt" || complain "--max_eval_samples 3 evaluates other rows than the first 3"

# Errors name file and place, and what to do.
mkdir wrong
own() { "${run[@]}" --data-dir wrong --text-columns text --label-column label --do-train --output-dir "out wrong"; }
expect 1 own
says "wrong/train.tsv, .csv or .jsonl" "--data-dir"
printf 'text,label\n"a good film,1\n' >wrong/train.csv
expect 1 own
says "wrong/train.csv:2:1: expected a closing quote"
printf 'text,label\na film,1\n' >wrong/train.csv
expect 1 own
says "wrong/train.csv: all labels are '1'"
printf 'text,label\n' >wrong/train.csv
expect 1 own
says "wrong/train.csv: expected at least one row with a label, found none"
printf 'text,label\na film,0.5\na plot,good\n' >wrong/train.csv
expect 1 own
says "wrong/train.csv:3: the label 'good'" "expected scores or classes"
printf 'text,label\na film,1\na plot,nan\n' >wrong/train.csv
expect 1 own
says "wrong/train.csv:3: the label 'nan' is a table's word for a missing value"
echo '{"text": ["a film", "a plot"], "label": ["x", "y"]}' >wrong/train.json
rm wrong/train.csv
expect 1 own
says "wrong/train.json:1: 'label' is an array; expected a text or a number"
rm wrong/train.json

# What may be a mistake is said: labels that differ only in case, rare ones, quotes in TSV.
{ printf '"text"\tlabel\n' && for ((i = 0; i < 400; i++)); do printf '"a ""good"" film"\t%s\n' "$((i % 2 ? 1 : 0))"; done
  printf '"a film"\tA\n"a plot"\ta\n"a plot"\t1.0\nNA\ta\n'; } >wrong/train.tsv
expect 0 "${run[@]}" --data-dir wrong --text-columns '"text"' --label-column label --do-train --max-steps 1 --output-dir "out said"
says "train.tsv: '1' and '1.0', 'A' and 'a' differ only in case, blanks or how a number is written" \
    "under 1 % of the 404 rows have the labels '1.0' (1, first in line 404), 'A' (1, first in line 402), 'a' (2, first in line 403)" "403 of 404 rows have a column in quotes" \
    "train.tsv: 1 row has a table's word for a missing value (nan, NA, None …) as text; the first is line 405"
printf 'text\tlabel\n"a film, a plot"\t1\ngood\t0\n' >wrong/train.tsv # as Excel writes a comma
expect 0 "${run[@]}" --data-dir wrong --text-columns text --label-column label --do-train --max-steps 1 --output-dir "out commas"
says "1 of 2 rows have a column in quotes"
printf 'text\tlabel\n"a film"\t1\n"a plot, bad"\t1\ngood\t0\n' >wrong/train.tsv
expect 0 "${run[@]}" --data-dir wrong --text-columns text --label-column label --do-train --max-steps 1 --output-dir "out quotations"
[[ $output != *"in quotes"* ]] || complain "quotations are taken for a table program's quotes"
rm wrong/train.tsv
printf 'text\tlabel\na film\t1\n' >wrong/train.csv
expect 1 own
says "expected a column named 'label'" "name the file .tsv"
printf 'text\tlabel\na film\t1\n' >wrong/train.tsv
expect 2 own
says "wrong/train.tsv" "wrong/train.csv" "expected one file of this split"
expect 2 "${run[@]}" --data-dir wrong --text-columns text --do-train --output-dir "out wrong"
says --label-column

finish
