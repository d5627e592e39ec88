#!/usr/bin/env bash
# Own data in one file: a dev split held out of it, scores of each label, and weights of labels in the loss.
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

cat >config.json <<'END'
{"vocab_size": 13, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64,
 "max_position_embeddings": 32, "type_vocab_size": 2}
END
printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' good bad dull film plot a the , >vocab.txt
run=("$CAIRN_BINARY" glue --model-config config.json --vocab vocab.txt --backend cpu --threads 1 --snapshot-dir none --precision fp32
    --task custom --text-columns text --label-column label --max-seq-length 24 --batch-size 16 --learning-rate 1e-3)

# 100 rows: 60 positive, 30 negative, 10 neither.
mkdir own
{ echo text,label
  for ((i = 0; i < 100; i++)); do
      word=good label=positive
      ((i % 10 < 3)) && word=bad label=negative
      ((i % 10 == 9)) && word=dull label=neither
      printf 'the %s film, a plot %d,%s\n' "$word" "$i" "$label" | sed 's/\(.*\),/"\1",/'
  done; } >own/train.csv
split=("${run[@]}" --data-dir own --eval-fraction 0.2)

# Each --seed has the same dev split, and evaluation without training has it; its index is the row of the file.
expect 0 "${split[@]}" --do-train --do-eval --learning-rate 5e-3 --epochs 20 --output-dir first
says "own/train.csv: 80 rows to train on, 20 held out (--eval-fraction 0.2, --split-seed 42): 'negative' 6, 'neither' 2, 'positive' 12"
expect 0 "${split[@]}" --do-train --do-eval --epochs 1 --seed 7 --output-dir second
expect 0 "${split[@]}" --do-train --do-eval --epochs 1 --split-seed 7 --output-dir third
expect 0 "${split[@]}" --do-eval --model first --output-dir alone
rows() { cut -f1 "$1/predictions_dev.tsv"; }
[ "$(rows first)" = "$(rows second)" ] || complain "--seed changes the dev split"
[ "$(rows first)" != "$(rows third)" ] || complain "--split-seed changes nothing"
cmp first/predictions_dev.tsv alone/predictions_dev.tsv || complain "evaluation alone has another dev split"
cmp first/eval_results.txt alone/eval_results.txt || complain "evaluation alone has other scores"
mkdir apart whole
{ head -n 1 own/train.csv && rows first | sed 1d | while read -r row; do sed -n $((row + 2))p own/train.csv; done; } >apart/validation.csv
rows first | sed 1d | awk '{ print $1 + 2 "d" }' | sed -f - own/train.csv >apart/train.csv
expect 0 "${run[@]}" --data-dir apart --do-train --do-eval --learning-rate 5e-3 --epochs 20 --output-dir "out apart"
cmp first/model.safetensors "out apart/model.safetensors" || complain "a split by hand trains another model"
cmp first/eval_results.txt "out apart/eval_results.txt" || complain "validation.csv with the same rows evaluates otherwise"

# A text on both sides is counted.
cp own/train.csv whole/train.csv
sed 1d own/train.csv >>whole/train.csv
expect 0 "${run[@]}" --data-dir whole --eval-fraction 0.5 --do-train --do-eval --max-steps 1 --output-dir "out whole"
says "held-out rows have the text of a row that is trained on"

# Refused by name.
expect 2 "${run[@]}" --data-dir apart --eval-fraction 0.2 --do-train --do-eval --output-dir wrong
says "--eval-fraction 0.2 holds out rows of apart/train.csv, and apart/validation.csv is a dev split, too"
cp apart/validation.csv apart/dev.csv
expect 2 "${run[@]}" --data-dir apart --do-train --do-eval --output-dir wrong
says "apart/dev.csv and apart/validation.csv: expected one file of this split"
expect 2 "${run[@]}" --data-dir own --split-seed 3 --do-train --output-dir wrong
says "--split-seed 3: expected --eval-fraction"
expect 2 "$CAIRN_BINARY" glue --task MNLI --data-dir own --eval-fraction 0.2 --do-train --output-dir wrong
says "--eval-fraction is an option of --task custom"
expect 1 "${run[@]}" --data-dir own --do-train --do-eval --output-dir wrong
says "--eval-fraction 0.1 holds out rows of the training file"

# Scores of each label, where Transformers' keys are, and for people.
has_file first/confusion_dev.svg
says_file() { grep -qF -- "$2" "$1" || complain "$1 lacks '$2': $(cat "$1")"; }
says_file first/eval_results.json '"eval_macro_f1": 1'
says_file first/eval_results.json '{"label": "neither", "precision": 1, "recall": 1, "f1": 1, "support": 2, "predicted": 2}'
says_file first/eval_results.json '[0, 0, 12]]'
says_file first/eval_results.txt "'neither'         1.0000  1.0000  1.0000     2              0             2              0"
says_file first/report.html "Confusion matrix of dev"
says_file first/run.json '"dev macro_f1": 1'
[ "$(json_number first/eval_results.json eval_samples_cut)" = 0 ] || complain "texts that were cut are not counted"
expect 0 "${run[@]}" --max-seq-length 6 --data-dir own --eval-fraction 0.2 --do-train --do-eval --max-steps 1 --output-dir short
[ "$(json_number short/eval_results.json eval_samples_cut)" = 20 ] || complain "cut texts are not counted"

# --class-weights: a step of all rows has torch's loss, Σ w·nll / Σ w of the labels, and with smoothing its formula. The
# dev split is the training data, and a learning rate of 0 keeps the model.
mkdir same
cp own/train.csv same/train.csv
cp own/train.csv same/dev.csv
still=("${run[@]}" --data-dir same --do-train --do-eval --dropout 0 --learning-rate 0 --batch-size 100 --max-steps 1)
# torch_loss DIR SMOOTHING: from the probabilities of the predictions, in the order of the rows
torch_loss() {
    sed '1d;s/.*",//' same/dev.csv | paste - <(sed 1d "$1/predictions_dev.tsv") | awk -v smooth="$2" '
        { w["negative"] = 3; w["neither"] = 10; w["positive"] = 0.5
          p["negative"] = $4; p["neither"] = $5; p["positive"] = $6
          sum -= (1 - smooth) * w[$1] * log(p[$1]); all += w[$1]
          for (k in w) sum -= smooth / 3 * w[k] * log(p[k]) }
        END { printf "%.6f\n", sum / all }'
}
first_loss() { sed -n '1s/.*"loss": *\([0-9.]*\).*/\1/p' "$1/metrics.jsonl"; }
for smooth in 0 0.1; do
    expect 0 "${still[@]}" --class-weights 3,10,0.5 --label-smoothing "$smooth" --output-dir "still $smooth"
    says "weights in the loss: 'negative' 3, 'neither' 10, 'positive' 0.5"
    awk -v a="$(first_loss "still $smooth")" -v b="$(torch_loss "still $smooth" "$smooth")" 'BEGIN { exit !((a - b) ^ 2 < 1e-10) }' ||
        complain "smoothing $smooth: loss $(first_loss "still $smooth"), torch's is $(torch_loss "still $smooth" "$smooth")"
done
expect 0 "${still[@]}" --class-weights auto --output-dir balanced
says "'negative' 1.11111, 'neither' 3.33333, 'positive' 0.555556"
expect 0 "${still[@]}" --output-dir plain
[ "$(json_number balanced/eval_results.json eval_loss)" = "$(json_number plain/eval_results.json eval_loss)" ] ||
    complain "the loss of an evaluation has weights"

# The weights are of the whole step: micro-batches, ranks and recomputation change no bit, with virtual ranks.
steps=("${split[@]}" --do-train --class-weights auto --label-smoothing 0.1 --max-steps 6 --virtual-ranks 4 --grain-tokens 24)
expect 0 "${steps[@]}" --output-dir bits
expect 0 "${steps[@]}" --recompute full --output-dir "bits recomputed"
expect 0 "${steps[@]}" --micro-batch-tokens 24 --output-dir "bits in pieces"
expect 0 "$CAIRN_BINARY" launch --ranks 2 -- "${steps[@]:1}" --output-dir "bits of two"
for other in recomputed "in pieces" "of two"; do
    cmp bits/model.safetensors "bits $other/model.safetensors" || complain "$other: another model"
done
whole=("${split[@]}" --do-train --class-weights auto --dropout 0 --max-steps 6)
expect 0 "${whole[@]}" --output-dir undivided
expect 0 "${whole[@]}" --micro-batch-tokens 24 --output-dir divided
awk '{ split($0, x, /"loss": /); getline y < "divided/metrics.jsonl"; split(y, z, /"loss": /)
       if ((x[2] - z[2]) ^ 2 > 1e-10 || x[2] + 0 == 0) bad = 1 } END { exit bad || NR != 6 }' undivided/metrics.jsonl ||
    complain "micro-batches have other losses than the whole step: $(cat undivided/metrics.jsonl divided/metrics.jsonl)"

expect 2 "${split[@]}" --do-train --class-weights 1,2 --output-dir wrong
says "--class-weights '1,2': expected auto, or 3 weights" "'negative' to 'positive'"
expect 2 "${split[@]}" --do-train --class-weights 1,0,2 --output-dir wrong
says "expected a number above 0 for 'neither', found '0'"
expect 1 "${split[@]}" --do-train --class-weights auto --labels negative,neither,positive,other --output-dir wrong
says "expected rows of each label to train on, found none of 'other'"
expect 2 "${split[@]}" --do-train --class-weights auto --multi-label --output-dir wrong
says "--class-weights is for tasks of one label in several"
finish
