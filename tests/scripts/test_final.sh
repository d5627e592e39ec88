#!/usr/bin/env bash
# Epochs as intervals; the best model at the end, through kills; the published folder against its manifest.
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

films
{ echo label,text && cat rows; } >data/train.csv
# The dev split has the labels the other way round, so that the loss is best at the first evaluation.
{ echo label,text && sed 's/^positive,/x,/; s/^negative,/positive,/; s/^x,/negative,/' rows; } >data/dev.csv
run=("$CAIRN_BINARY" glue --model-config config.json --vocab vocab.txt --backend cpu --threads 1 --snapshot-dir none
    --task custom --text-columns text --label-column label --data-dir data --max-seq-length 24 --batch-size 8
    --learning-rate 5e-3 --do-train --do-eval)
steps_of() { sed -n 's/^{"step": *\([0-9]*\),.*accuracy.*/\1/p' "$1/eval.jsonl" | tr '\n' ' '; }
saved_in() { (cd "$1" && printf '%s\n' checkpoint-* | sort -t- -k2n | tr '\n' ' '); }
flip() { # the last bit of byte $2 of the file $1
    local byte
    byte=$(od -An -tu1 -j "$2" -N 1 "$1")
    # shellcheck disable=SC2059 # an octal number
    printf "\\$(printf %03o $((byte ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}
same() { cmp "$1/model.safetensors" "$2/model.safetensors" || complain "$1 and $2 are different models"; }

# ---- epochs: 5 steps each, and the end of training ----
epochs=("${run[@]}" --best-by loss --eval-every epoch --save-every epoch --keep 9)
expect 0 "${epochs[@]}" --epochs 2.5 --output-dir whole
[ "$(steps_of whole)" = "5 10 13 " ] || complain "evaluated at $(steps_of whole)"
[ "$(saved_in whole)" = "checkpoint-5 checkpoint-10 checkpoint-13 " ] || complain "saved $(saved_in whole)"
expect 0 "${epochs[@]}" --max-steps 7 --output-dir few
[ "$(steps_of few)" = "5 7 " ] || complain "--max-steps 7 evaluates at $(steps_of few)"
[ "$(saved_in few)" = "checkpoint-5 checkpoint-7 " ] || complain "--max-steps 7 saves $(saved_in few)"
expect 75 env CAIRN_TEST_AT=step8-0=term "${epochs[@]}" --epochs 2.5 --output-dir stopped
expect 0 "${epochs[@]}" --epochs 2.5 --output-dir stopped
says "resuming from stopped/checkpoint-7"
cmp whole/eval.jsonl stopped/eval.jsonl || complain "other evaluations after a stop"
has_file stopped/checkpoint-{5,7,10,13}/state.json
same whole stopped
expect 0 "${run[@]}" --eval_strategy epoch --save_strategy epoch --save_total_limit 9 --load_best_model_at_end --metric_for_best_model eval_loss --num_train_epochs 2.5 --output-dir theirs
cmp whole/eval.jsonl theirs/eval.jsonl || complain "Transformers' flags evaluate otherwise"
same whole theirs
expect 0 "$CAIRN_BINARY" launch --ranks 2 -- "${epochs[@]:1}" --epochs 2.5 --output-dir "two ranks"
[ "$(steps_of "two ranks") $(saved_in "two ranks")" = "$(steps_of whole) $(saved_in whole)" ] || complain "two ranks evaluate or save elsewhere"
expect 0 "${epochs[@]}" --epochs 20 --patience 2 --output-dir patient
[ "$(wc -l <patient/metrics.jsonl)" = $(($(json_number patient/best/best.json step) + 10)) ] || complain "--patience 2 counts no epochs"

# ---- the best at the end ----
best=$(json_number whole/best/best.json step)
[ "$best" -lt 13 ] || complain "the test needs a best model before the last step"
same whole whole/best
expect 0 "${epochs[@]}" --epochs 2.5 --output-dir whole
says "finished before"
expect 0 "${epochs[@]}" --epochs 2.5 --final last --output-dir whole
says "the model of the last step is published; the best by -loss" "of step $best, is in whole/best"
expect 0 "${epochs[@]}" --epochs 2.5 --final last --output-dir last
same whole last
cmp -s whole/model.safetensors whole/best/model.safetensors && complain "--final last publishes the best"
expect 0 "${epochs[@]}" --epochs 2.5 --output-dir whole
says "the model of step $best, the best by -loss ($(printf %.4f "$(json_number whole/best/best.json metric)")), is published; --final last publishes the last"
same whole stopped
[ "$(json_number whole/manifest.json step)" = "$best" ] || complain "the manifest has step $(json_number whole/manifest.json step)"
expect 0 "$CAIRN_BINARY" glue --task custom --model whole --data-dir data --do-eval --backend cpu --label-column label --output-dir again
cmp whole/eval_results.txt again/eval_results.txt || complain "the results are not those of the published model"
expect 0 "$CAIRN_BINARY" verify whole
expect 0 "${epochs[@]}" --epochs 4 --override --output-dir few
says "resuming from few/checkpoint-7"
same few few/best

for place in evaluate13 evaluated13 save final published; do
    expect 137 env CAIRN_TEST_AT=$place-0=kill "${run[@]}" --best-by loss --eval-every epoch --save-every off --epochs 2.5 --output-dir "end $place"
    expect 0 "${run[@]}" --best-by loss --eval-every epoch --save-every off --epochs 2.5 --output-dir "end $place"
    same whole "end $place"
    cmp whole/eval_results.txt "end $place/eval_results.txt" || complain "other results after a kill at $place"
done
# Killed while it changes which model is published, and run again as before; with the published model damaged.
for place in final published; do
    expect 137 env CAIRN_TEST_AT=$place-0=kill "${epochs[@]}" --epochs 2.5 --final last --output-dir whole
    expect 0 "${epochs[@]}" --epochs 2.5 --output-dir whole
    same whole stopped
done
flip whole/model.safetensors 5000
expect 0 "${epochs[@]}" --epochs 2.5 --output-dir whole
same whole stopped
for place in final-1 final-0 published-1; do
    CAIRN_TEST_AT=$place=kill "$CAIRN_BINARY" launch --ranks 2 -- "${epochs[@]:1}" --epochs 2.5 --output-dir "two $place" >/dev/null 2>&1 &&
        complain "no rank was killed at $place"
    expect 0 "$CAIRN_BINARY" launch --ranks 2 -- "${epochs[@]:1}" --epochs 2.5 --output-dir "two $place"
    same "two ranks" "two $place"
done
for kind in "--shard optimizer" "--pipeline 1f1b --micro-batch-tokens 64" "--pipeline zb-v --micro-batch-tokens 64"; do
    folder="out ${kind:2:16}"
    # shellcheck disable=SC2086 # words
    expect 0 "$CAIRN_BINARY" launch --ranks 2 -- "${epochs[@]:1}" --epochs 2.5 $kind --output-dir "$folder"
    says "is published"
    [ "$(json_number "$folder/manifest.json" step)" -lt 13 ] || complain "$kind: the test needs a best model before the last step"
    same "$folder" "$folder/best"
    expect 0 "$CAIRN_BINARY" inspect --verify --model "$folder"
done
sed -i 's/"step": [0-9]*/"step": 12/' stopped/best/best.json
expect 79 "${epochs[@]}" --epochs 2.5 --resume stopped/checkpoint-10 --override --output-dir stopped
says "stopped/best: expected the model of step $best, whose evaluation was the best, found that of step 12" "--final last publishes"
expect 0 "${epochs[@]}" --epochs 2.5 --final last --output-dir stopped
expect 2 "${run[@]}" --final best --output-dir wrong
says "--final best: no evaluation would choose the best model"

# ---- a dry run names what would end the run: /proc has no room ----
expect 1 "${epochs[@]}" --dry-run --output-dir /proc/none
says "/proc/none: a checkpoint needs" "are free there"

# ---- the published folder and its manifest ----
expect 0 "$CAIRN_BINARY" convert --model whole --output converted
for folder in whole whole/best whole/checkpoint-13 converted; do
    expect 0 "$CAIRN_BINARY" inspect --verify --model "$folder"
    says "model.safetensors " "vocab.txt "
done
predict=("$CAIRN_BINARY" predict --backend cpu --input data/dev.csv --output answers.jsonl)
flip converted/model.safetensors 5000
expect 79 "$CAIRN_BINARY" inspect --verify --model converted
says "converted: 1 of" "the first is model.safetensors"
for command in "${predict[*]} --model converted" "${run[*]} --model converted --output-dir wrong"; do
    # shellcheck disable=SC2086 # words
    expect 79 $command
    says "converted/model.safetensors: its digest is" "remove converted/manifest.json"
done
flip converted/model.safetensors 5000
sed -i 's/^line$/lines/' converted/vocab.txt
sed -i 's/"negative"/"wrong"/' converted/config.json
expect 79 "$CAIRN_BINARY" inspect --verify --model converted
says "converted: 2 of" "the first is config.json"
expect 0 "${predict[@]}" --model converted
says "warning: converted/config.json: " "warning: converted/vocab.txt: has" "or edited" "cairn convert --model converted --output NEW"
grep -q '"wrong"' answers.jsonl || complain "an edited config.json is not used"
expect 0 "$CAIRN_BINARY" convert --model converted --output edited
expect 0 "$CAIRN_BINARY" inspect --verify --model edited
flip converted/manifest.json 40
expect 79 "${predict[@]}" --model converted
says "converted/manifest.json: " "Restore it, or remove it"
rm converted/manifest.json
expect 0 "${predict[@]}" --model converted
grep -q manifest <<<"$output" && complain "a folder without a manifest is warned of: $output"
expect 2 "$CAIRN_BINARY" inspect --verify --model converted
says "converted has no manifest.json"
echo '{"files": []}' >converted/manifest.json # of another program
expect 0 "${predict[@]}" --model converted

finish
