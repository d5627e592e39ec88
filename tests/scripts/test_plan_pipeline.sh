#!/usr/bin/env bash
# `cairn plan --pipeline`: a line per schedule, memory of each place, K-FAC in the bubbles, the drawing, and what a user gives wrongly.
set -euo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

plan() { expect "$1" "$CAIRN_BINARY" plan --device h200 --model-config bert-base "${@:2}"; }
number() { grep -o "\"$1\": [0-9.e+-]*" "$work/.stdout" | head -n 1 | sed 's/.*: //'; }
between() { awk -v low="$1" -v x="$2" -v high="$3" 'BEGIN { exit !(low <= x && x <= high) }' || complain "$4: $2 is not between $1 and $3"; }

plan 0 --pipeline all --stages 4 --ranks 4 --batch-size 64 --kfac-interval 10 --svg all.svg
says gpipe 1f1b interleaved chimera zb-h1 zb-v bubble filled
has_file all.svg
for name in forward backward curvature inverses update 'zb-v: bubble'; do grep -qF -- "$name" all.svg || complain "the drawing has no '$name'"; done

# A schedule's stages share the layers; places of 1f1b keep ever fewer micro-batches.
plan 0 --pipeline 1f1b --stages 4 --ranks 8 --batch-size 64 --predictions 20 --json
grep -qF '"slots": [4, 0, 0]' "$work/.stdout" || complain "the first place keeps 4 micro-batches"
[ "$(number replicas)" = 2 ] || complain "two replicas of four places"
layers=$(grep -o '"layers": [0-9]*' "$work/.stdout" | awk '{ n += $2 } END { print n }')
[ "$layers" = 12 ] || complain "the stages have $layers of 12 layers"
plan 0 --pipeline 1f1b --stages 4 --ranks 4 --stage-layers 2,4,4,2 --json
grep -qF '"stage": 1, "layers": 4' "$work/.stdout" || complain "--stage-layers is not taken"

# Fewer ranks than stages: consecutive stages share a place, on one rank all of them.
plan 0 --pipeline gpipe --stages 4 --ranks 1 --batch-size 32 --json
[ "$(grep -o '"stage": ' "$work/.stdout" | wc -l) $(number replicas) $(number bubble)" = "4 1 0" ] || complain "four stages on a rank"
plan 0 --pipeline zb-h1 --stages 6 --ranks 2
says "zb-h1"

# A sharded optimizer takes less of every place.
plan 0 --pipeline chimera --stages 4 --ranks 4 --json
whole=$(number peak)
plan 0 --pipeline chimera --stages 4 --ranks 4 --json --shard optimizer
[ "$(number peak)" -lt "$whole" ] || complain "--shard optimizer: a peak of $(number peak), without it $whole"

# PipeFisher's cost table of BERT-Base on a P100: the step and the utilizations of the specification.
printf '%s\n' '# ms of a layer' forward_ms,backward_ms,curvature_ms,inverses_ms,precondition_ms 9.75,16.45,25.5,71.7,6.8 >base.csv
paper=(--stages 4 --ranks 4 --batch-size 128 --max-seq-length 128 --micro-batch-tokens 4096 --costs base.csv --kfac-interval 10 --json)
for schedule in gpipe 1f1b; do
    plan 0 --pipeline "$schedule" "${paper[@]}"
    between 0.5501 "$(number works_s)" 0.5503 "$schedule's step"
    between 0.4285 "$(number bubble)" 0.4287 "$schedule's bubble"
    between 0.886 "$(number utilization)" 1 "$schedule's utilization"
    [ "$(number steps)" = 3 ] || complain "$schedule: a refresh takes $(number steps) steps"
    [ "$(number exposed_s)" = 0 ] || complain "$schedule: work is exposed"
done

# --recompute auto gives up what the first places have no room for.
tight=(--pipeline gpipe --stages 4 --ranks 4 --batch-size 256 --memory-budget 2500MiB)
plan 76 "${tight[@]}"
says "does not fit" "--recompute auto"
plan 0 "${tight[@]}" --recompute auto

# ---- what is given wrongly: 2, and a setting that works ----
# What a refusal says after "give", if it names flags with values: each of the settings is taken.
refused() { # TEXT FLAG...
    local advice setting
    plan 2 "${@:2}"
    says "$1"
    advice=$(sed -n 's/.*: give \(--.*\)/\1/p' <<<"$output" | tail -n 1)
    while read -r setting; do
        # shellcheck disable=SC2086 # flags and values
        [ -z "$setting" ] || plan 0 "${@:2}" $setting
    done <<<"${advice//, or /$'\n'}"
    [ "${1#give --}" = "$1" ] || [ -n "$advice" ] || complain "no settings are advised: $*"
}
refused "give --stages 8, or --stages 12 --ranks 12" --pipeline 1f1b --stages 16 --ranks 16
refused "give --stages 3, or --stages 4 --ranks 8" --pipeline 1f1b --stages 4 --ranks 6
refused "give --stages 4" --pipeline chimera --stages 5 --ranks 4
refused "give --stages 2 --ranks 4" --pipeline chimera --stages 3 --ranks 3
refused "give --stages 4" --pipeline interleaved --stages 3 --ranks 2
refused "give --stages 8" --pipeline interleaved --stage-chunks 4 --stages 5 --ranks 2
refused "give --stages 8, or --stages 12 --ranks 6" --pipeline zb-v --ranks 8
refused "at least 2 stages on a rank; give --pipeline 1f1b" --pipeline interleaved --stage-chunks 1 --ranks 4
refused "give the number of stages" --pipeline gpipe
refused "4 stages takes 4 ranks, a multiple or a divisor; there are 3: give --stages 3, or" --pipeline gpipe --stages 4 --ranks 3
refused "found 4 stages of 12 in all: give --stage-layers 4,4,4, or" --pipeline 1f1b --ranks 3 --stage-layers 3,3,3,3
refused "found 4 stages of 13 in all: give --stage-layers 3,3,3,3" --pipeline 1f1b --ranks 4 --stage-layers 3,3,3,4
refused "found '0': give --stage-layers 3,3,3,3" --pipeline 1f1b --ranks 4 --stage-layers 6,6,0,0
refused "found 'x'" --pipeline 1f1b --ranks 4 --stage-layers 3,x,3,3
for alone in "--stages 4" "--stage-chunks 3" "--stage-layers 6,6"; do
    # shellcheck disable=SC2086 # a flag and its value
    refused "${alone% *} needs --pipeline: give a schedule" $alone
done
kfac=(--pipeline 1f1b --ranks 4 --kfac-interval 10)
refused "--kfac-interval with --precision fp16" "${kfac[@]}" --precision fp16
refused "--kfac-interval with --padded" "${kfac[@]}" --padded
refused "--kfac-lag needs --kfac-interval" --pipeline 1f1b --ranks 4 --kfac-lag 2
refused "--kfac-lag '11': expected auto, or 0 to --kfac-interval" --pipeline 1f1b --ranks 4 --kfac-interval 10 --kfac-lag 11
refused "expected one of" --pipeline 2f2b --ranks 4
printf 'forward_ms\n1\n' >bad.csv
expect 1 "$CAIRN_BINARY" plan --device h200 --model-config bert-base --pipeline 1f1b --ranks 4 --costs bad.csv
says "expected a column backward_ms"
# of two columns with one name the first counts, and it is no number here
printf 'forward_ms,forward_ms,backward_ms,curvature_ms,inverses_ms,precondition_ms\nx,1,2,3,4,5\n' >bad.csv
expect 1 "$CAIRN_BINARY" plan --device h200 --model-config bert-base --pipeline 1f1b --ranks 4 --costs bad.csv
says "expected a column forward_ms"

# A stage that does not fit: 76, with the budget and the split that would do.
plan 76 --pipeline 1f1b --stages 4 --ranks 4 --batch-size 64 --stage-layers 9,1,1,1 --memory-budget 1300MiB --recompute full
says "place 0 of the pipeline takes" "--memory-budget" "--stage-layers"
split=$(sed -n 's/.*--stage-layers \([0-9,]*\), which.*/\1/p' <<<"$output" | tail -n 1)
budget=$(sed -n 's/.*fit with --memory-budget \([0-9]*MiB\).*/\1/p' <<<"$output" | tail -n 1)
plan 0 --pipeline 1f1b --stages 4 --ranks 4 --batch-size 64 --stage-layers 9,1,1,1 --memory-budget "$budget" --recompute full
plan 0 --pipeline 1f1b --stages 4 --ranks 4 --batch-size 64 --stage-layers "$split" --memory-budget "$budget" --recompute full

# Fewer micro-batches than places warn.
plan 0 --pipeline 1f1b --ranks 4 --batch-size 8 --micro-batch-tokens step
says "1 micro-batches a step for 4 places leave a bubble"

finish
