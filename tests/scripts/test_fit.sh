#!/usr/bin/env bash
# --fit-schedule: the run is, bit for bit, that of the --max-steps that it prints; the progress of predict.
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

films
for split in train dev; do { echo label,text && cat rows; } >data/$split.csv; done
run=(glue --model-config config.json --vocab vocab.txt --backend cpu --threads 1 --snapshot-dir none --task custom
    --text-columns text --label-column label --data-dir data --max-seq-length 24 --batch-size 8 --learning-rate 1e-3
    --digest-steps 1 --do-train --do-eval)
figures() { grep -oE '"(step|loss|lr|grad_norm|grads_digest|weights_digest)": [^,}]*' "$1/metrics.jsonl"; }

# Steps count as 12 s, so that about 45 fit into 10 minutes, and the clock decides nothing else.
export CAIRN_TEST_FIT_STEP=12s
fit() { # fit FOLDER RANKS FLAG...
    local out=$1 start=("$CAIRN_BINARY")
    [ "$2" = 1 ] || start+=(launch --ranks "$2" --)
    shift 2
    expect 0 "${start[@]}" "${run[@]}" --fit-schedule --max-time 10m "$@" --output-dir "$out"
    says "20 steps took" "an evaluation" "fits into" "the same run again: --max-steps"
    steps=$(sed -n 's/.*the same run again: --max-steps \([0-9]*\)$/\1/p' <<<"$output")
    { [ "$steps" -gt 35 ] && [ "$steps" -lt 50 ]; } || complain "$out: $steps steps of 12 s in 10 minutes"
    [ "$(wc -l <"$out/metrics.jsonl")" = "$steps" ] || complain "$out: $(wc -l <"$out/metrics.jsonl") steps, said $steps"
    expect 0 "${start[@]}" "${run[@]}" --max-steps "$steps" --max-time 10m "$@" --output-dir "$out given"
    cmp <(figures "$out") <(figures "$out given") || complain "$out: other steps than those of --max-steps $steps"
    cmp "$out/model.safetensors" "$out given/model.safetensors" || complain "$out: another model than that of --max-steps $steps"
}
fit plain 1 --eval-every 20 --warmup 0.1
grep -q "\"max-steps\": $steps" plain/run.json || complain "run.json does not have the steps"
[ "$(grep -c '"accuracy"' plain/eval.jsonl)" = $((steps / 20 + (steps % 20 > 0))) ] || complain "the timed evaluation is in eval.jsonl"
fit "from a model" 1 --model plain --optimizer lamb --save-steps 40
fit ranks 2 --shard optimizer
fit virtual 2 --virtual-ranks 4 --audit 50%
fit pipeline 2 --pipeline zb-v --micro-batch-tokens 64
expect 0 "$CAIRN_BINARY" verify plain --steps 1-30

# A run that resumes keeps its steps, whatever a step takes by then.
expect 75 env CAIRN_TEST_AT=step9-0=term "$CAIRN_BINARY" "${run[@]}" --fit-schedule --max-time 10m --output-dir stopped
steps=$(sed -n 's/.*the same run again: --max-steps \([0-9]*\)$/\1/p' <<<"$output")
expect 0 env CAIRN_TEST_FIT_STEP=1s "$CAIRN_BINARY" "${run[@]}" --fit-schedule --max-time 10m --output-dir stopped
says "resuming from stopped/checkpoint-8: step 8 of $steps" "with --max-steps $steps, which stays"
expect 0 "$CAIRN_BINARY" "${run[@]}" --fit-schedule --max-time 10m --output-dir stopped
says "finished before"
expect 0 "$CAIRN_BINARY" "${run[@]}" --max-steps "$steps" --output-dir whole
cmp stopped/model.safetensors whole/model.safetensors || complain "a resumed run has another model"
expect 0 "$CAIRN_BINARY" "${run[@]}" --epochs 1 --output-dir epochs
expect 2 "$CAIRN_BINARY" "${run[@]}" --epochs 1 --fit-schedule --max-time 10m --output-dir epochs
says "epochs/checkpoint-5 is of a run whose steps follow from --epochs"

# --epochs, where it is given, is the most: 40 rows by 8 are 5 steps an epoch.
expect 0 "$CAIRN_BINARY" "${run[@]}" --epochs 6 --fit-schedule --max-time 10m --output-dir few
says "--max-steps 30 (6 epochs) fits into 10m 00s, which has room for" "the same run again: --max-steps 30"

# Too little time is refused after the timed steps; what contradicts, before.
expect 2 "$CAIRN_BINARY" "${run[@]}" --fit-schedule --max-time 30s --output-dir short
says "20 steps took" "steps fit; expected 20 or more"
[ ! -e short/metrics.jsonl ] || complain "a run that does not fit has steps"
refused() {
    expect 2 "$CAIRN_BINARY" "${run[@]}" --fit-schedule "${@:2}" --output-dir none
    says "--fit-schedule: $1"
}
refused "it needs --max-time"
refused "it chooses the steps" --max-time 10m --max-steps 9
refused "it cannot take back the statistics of K-FAC" --max-time 10m --kfac-interval 5
refused "it does not count the time of predictions" --max-time 10m --do-predict

# ---- the progress of predict: a line now and then on stderr, none for small inputs ----
predict=("$CAIRN_BINARY" predict --backend cpu --model plain --output answers.jsonl)
expect 0 "${predict[@]}" --input data/dev.csv
grep -q predicting: <<<"$output" && complain "a small input has progress: $output"
touch due # the file gives the clock to this test: each line is due
export CAIRN_TEST_PROGRESS=$PWD/due
expect 0 "${predict[@]}" --input data/dev.csv
says "100.0 %  predicting: 40 texts"
expect 0 bash -c '"$@" <data/dev.csv' - "${predict[@]}"
says "predicting: 40 texts"
expect 0 bash -c 'tail -n +1 data/dev.csv | "$@"' - "${predict[@]}"
says "predicting: 40 texts"
grep -q % <<<"$(grep predicting: <<<"$output")" && complain "a pipe has no end to count to: $output"

finish
