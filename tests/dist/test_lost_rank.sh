#!/usr/bin/env bash
# A rank that freezes or fails by itself: every other rank ends with 77 and a line that names it, while the lost one is
# still frozen. Ranks killed in an evaluation, or while they compare digests. No time-out passes by itself.
set -euo pipefail
# shellcheck source=tests/dist/ranks.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/ranks.sh"

make_tiny_bert tiny
small_data 40
data=$work/data
glue=(glue --model-config "$work/tiny/config.json" --vocab "$work/tiny/vocab.txt" --data-dir "$data" --do-train --do-eval
    --backend ref --batch-size 4 --max-seq-length 32 --schedule constant)
evaluated=("${glue[@]}" --max-steps 6 --eval-every 2 --learning-rate 1e-3)
whole=$work/whole
start 2 whole "${evaluated[@]}" --output-dir whole
ended 0

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
# killed_at PLACE FLAG...: two ranks, one of which is killed there
killed_at() {
    CAIRN_TEST_AT=$1=kill start 2 "log$1" "${evaluated[@]}" "${@:2}"
    survivors "${1##*-}" "log$1"
    wait "${ranks[${1##*-}]}" 2>/dev/null || true
}

# killed_behind PLACE RANK LOG COMMAND...: two ranks, of which RANK is killed when both have come to that place
child_stopped() { process=$(pgrep -P "$1") && stopped "$process"; }
killed_behind() {
    local process processes=() r lost=$2
    CAIRN_TEST_AT="$1-0=stop $1-1=stop" start 2 "${@:3}"
    for r in 0 1; do
        wait_until "$hang_limit" child_stopped "${ranks[r]}" || complain "rank $r does not come to $1"
        processes[r]=$process
    done
    kill -KILL -- "${processes[lost]}"
    kill -CONT -- "${processes[1 - lost]}"
    survivors "$lost" "$3"
    wait "${ranks[lost]}" 2>/dev/null || true
}

frozen() {
    local process r
    slowly
    start 3 log "${glue[@]}" --max-steps 100000 --output-dir out
    wait_until "$hang_limit" reached out 3 || complain "it does not get to its third step"
    process=$(pgrep -P "${ranks[2]}")
    kill -STOP -- "$process"
    wait_until "$hang_limit" stopped "$process" || complain "rank 2 does not freeze"
    for r in 0 1; do silence "$r" 2; done
    survivors 2 log
    stopped "$process" || complain "rank 2 is not frozen"
    kill -KILL -- "$process"
    wait "${ranks[2]}" 2>/dev/null || true
}

# A rank killed in an evaluation, before or after rank 0 writes its lines: the lines and the best model of a whole run.
evaluation() {
    local place file
    for place in evaluated2-1 evaluated2-0 dev_matched-accuracy4-0 evaluated4-0 dev_mismatched-accuracy6-0; do
        killed_at "$place" --output-dir evaluated
    done
    start 2 rest "${evaluated[@]}" --output-dir evaluated
    ended 0
    for file in eval.jsonl best/model.safetensors best/best.json model.safetensors; do
        cmp "$whole/$file" "evaluated/$file" || complain "$file after ranks were killed in evaluations"
    done
}

# a rank that cannot read its data names the file, the others name the rank
unread() {
    local r from
    cp -r -- "$data" broken && rm broken/train.tsv
    meet 3
    for r in 0 1 2; do
        from=$data
        [ "$r" = 1 ] && from=$work/broken
        one "$r" 3 unread "${glue[@]/#$data/$from}" --max-steps 9 --output-dir unread
    done
    ended 1
    for r in 0 2; do
        grep -q "rank 1 on .*train.tsv" "unread.$r" || complain "rank $r does not say what rank 1 could not read"
    done
}

# A rank killed while ranks compare the digests of a step's weights: the others save these weights as those of that step.
compared() { # compared STEP RANK
    killed_behind "digest$1" "$2" compared "${evaluated[@]}" --digest-steps 1 --output-dir digests
    start 2 rest "${evaluated[@]}" --digest-steps 1 --output-dir digests
    ended 0
    grep -q "step $1 of 6" rest.0 || complain "after step $1 and rank $2 another step than that of the weights"
    cmp "$whole/model.safetensors" digests/model.safetensors || complain "after step $1 and rank $2 the model differs"
}

# A rank killed while ranks look who is slow, behind step 100: its update is made, so the others save it as step 100.
looked() {
    local run=("${glue[@]}" --max-steps 102)
    start 2 long "${run[@]}" --output-dir long
    ended 0
    killed_behind pace100 1 killed "${run[@]}" --output-dir looked
    start 2 rest "${run[@]}" --output-dir looked
    ended 0
    grep -q "step 100 of 102" rest.0 || complain "the state of step 100 is not saved as that"
    cmp long/model.safetensors looked/model.safetensors || complain "the model differs"
}

waits() { # waits COMMAND...: with its own silence
    export CAIRN_TEST_SLOW=$work/slow
    patiently
    "$@"
}
for case in frozen evaluation unread looked "compared 4 1" "compared 2 0"; do
    # shellcheck disable=SC2086 # two words
    beside waits $case
done
together
finish
