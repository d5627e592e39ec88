#!/usr/bin/env bash
# A rank that dies, freezes or fails by itself: every other rank ends with 77 and a line that names it, while the lost one
# is still frozen. No time-out passes by itself.
set -euo pipefail
# shellcheck source=tests/dist/ranks.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/ranks.sh"

make_tiny_bert tiny
small_data 40
glue=(glue --model-config tiny/config.json --vocab tiny/vocab.txt --data-dir data --do-train --do-eval --backend ref
    --batch-size 4 --max-seq-length 32 --max-steps 100000 --schedule constant)
patiently
slowly

# survivors LOST LOG: the others end with 77 and name it
survivors() {
    local lost=$1 log=$2 r code
    for r in "${!ranks[@]}"; do
        [ "$r" = "$lost" ] && continue
        code=0
        wait "${ranks[r]}" || code=$?
        [ "$code" -eq 77 ] || complain "rank $r ended with $code instead of 77 after rank $lost was lost"
        grep -q "rank $lost on" "$log.$r" || complain "rank $r does not name rank $lost: $(tail -n 1 "$log.$r")"
    done
}

for lost in 0 2; do
    for how in KILL STOP; do
        [ "$how$lost" != STOP0 ] || export CAIRN_TEST_SPARE_WAIT=0s # it has the folder's lock
        start 3 "log$how$lost" "${glue[@]}" --output-dir "out$how$lost"
        wait_until "$hang_limit" reached "out$how$lost" 3 || complain "out$how$lost does not get to its third step"
        process=$(pgrep -P "${ranks[lost]}")
        kill "-$how" -- "$process"
        if [ "$how" = STOP ]; then
            wait_until "$hang_limit" stopped "$process" || complain "rank $lost does not freeze"
            for r in 0 1 2; do silence "$r" "$lost"; done
        fi
        survivors "$lost" "log$how$lost"
        kill -KILL -- "$process" 2>/dev/null || true
        wait "${ranks[lost]}" 2>/dev/null || true
        heard
        export CAIRN_TEST_SPARE_WAIT=1h
    done
done

# A rank killed in an evaluation, before or after rank 0 writes its lines: the lines and the best model of a whole run.
evaluated=("${glue[@]}" --max-steps 6 --eval-every 2 --learning-rate 1e-3)
unset CAIRN_TEST_SLOW
start 2 whole "${evaluated[@]}" --output-dir whole
ended 0
for place in evaluated2-1 evaluated2-0 dev_matched-accuracy4-0 evaluated4-0 dev_mismatched-accuracy6-0; do
    export CAIRN_TEST_AT=$place=kill
    start 2 "log$place" "${evaluated[@]}" --output-dir evaluated
    unset CAIRN_TEST_AT
    survivors "${place##*-}" "log$place"
    wait "${ranks[${place##*-}]}" 2>/dev/null || true
done
start 2 rest "${evaluated[@]}" --output-dir evaluated
ended 0
for file in eval.jsonl best/model.safetensors best/best.json model.safetensors; do
    cmp "whole/$file" "evaluated/$file" || complain "$file after ranks were killed in evaluations"
done

# a rank that cannot read its data names the file, the others name the rank
cp -r -- data broken && rm broken/train.tsv
meet 3
for r in 0 1 2; do
    data=data
    [ "$r" = 1 ] && data=broken
    one "$r" 3 unread "${glue[@]/#data/$data}" --output-dir unread
done
ended 1
for r in 0 2; do
    grep -q "rank 1 on .*train.tsv" "unread.$r" || complain "rank $r does not say what rank 1 could not read"
done

# A rank killed while ranks compare the digests of a step's weights: the others save these weights as those of that step.
for place in digest4-1 digest2-0; do
    export CAIRN_TEST_AT=$place=kill
    start 2 "log$place" "${evaluated[@]}" --digest-steps 1 --output-dir digests
    unset CAIRN_TEST_AT
    survivors "${place##*-}" "log$place"
    wait "${ranks[${place##*-}]}" 2>/dev/null || true
    start 2 rest "${evaluated[@]}" --digest-steps 1 --output-dir digests
    ended 0
    grep -q "step ${place:6:1} of 6" rest.0 || complain "after $place another step than that of the weights"
    cmp whole/model.safetensors digests/model.safetensors || complain "after $place the model differs"
    rm -r digests
done

finish
