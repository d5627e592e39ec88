#!/usr/bin/env bash
# --audit on several ranks: a fault is found, the step is done again with the bits of a quiet run, a rank that is wrong
# twice is excluded, with a report that names its place. cairn verify with many ranks. Digests of sharded optimizers.
set -euo pipefail
# shellcheck source=tests/dist/ranks.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/ranks.sh"

make_tiny_bert tiny
small_data 40
glue=(glue --model-config tiny/config.json --vocab tiny/vocab.txt --data-dir data --do-train --backend ref
    --batch-size 9 --max-steps 4 --max-seq-length 32 --snapshot-steps 0)
# of the forward pass, so its number is that of one rank's plan
instr=$("$CAIRN_BINARY" plan --model-config tiny/config.json --backend ref --recompute full --audit recompute \
    --max-seq-length 32 --batch-size 9 --explain 2>/dev/null | awk '$2 == "forward" && / linear +l0.qkv/ && !n++ { print $1 }')

# same DIR DIR: the same weights
same() { cmp -s "$1/model.safetensors" "$2/model.safetensors" || complain "$1 and $2 have other weights"; }
# flip RANK STEP ATTEMPTS: a bit of the first layer's query of the first row
flip() { export CAIRN_TEST_FLIP="$1 $2 $3 $instr 0 20"; }
digests_of() { grep -o '"grads_digest.*' "$1/metrics.jsonl"; }

for n in 2 3; do
    unset CAIRN_TEST_FLIP
    start "$n" quiet "${glue[@]}" --output-dir "quiet$n" --digest-steps 2
    ended 0
    start "$n" clean "${glue[@]}" --output-dir "clean$n" --audit recompute,100% --recompute full --shard optimizer \
        --digest-steps 2
    ended 0
    same "quiet$n" "clean$n"
    [ "$(digests_of "quiet$n")" = "$(digests_of "clean$n")" ] || complain "$n ranks: digests differ"
    grep -q "4 of them computed twice, 0 differences" clean.0 || complain "$n ranks: no summary"
    grep -q "the second time on another rank" clean.0 || complain "$n ranks: not on another rank"

    flip 1 2 1 # once: done again
    start "$n" once "${glue[@]}" --output-dir "once$n" --audit recompute --recompute full
    ended 0
    same "quiet$n" "once$n"
    grep -q "rank 1 on .*: instr .* (linear l0.qkv') made tensor 'l0.qkv'' with other bits .* row 0" once.0 ||
        complain "$n ranks: the fault is not named: $(cat once.0)"
    grep -q '"step": 2, "attempt": 1, .*"rank": 1, .*"tensor": "l0.qkv.", "row": 0,.*"excluded": false' \
        "once$n/audit.jsonl" || complain "$n ranks: audit.jsonl is wrong: $(cat "once$n/audit.jsonl")"

    flip 1 3 9 # always: excluded
    start "$n" always "${glue[@]}" --output-dir "always$n" --audit recompute --recompute full
    ended 77
    for ((r = 0; r < n; r++)); do
        grep -q "step 3: rank 1 on .* computed wrongly twice, and is excluded .*step 2 is saved" "always.$r" ||
            complain "rank $r of $n does not say it: $(tail -n 2 "always.$r")"
    done
    has_file "always$n/audit-report.txt"
    unset CAIRN_TEST_FLIP
    start "$n" again "${glue[@]}" --output-dir "always$n" --recompute full
    ended 77
    grep -q "local rank 1 on .* is excluded" again.0 || complain "$n ranks: the excluded place is taken: $(tail -n 1 again.0)"
    rm "always$n/audit-report.txt"
    start "$n" repaired "${glue[@]}" --output-dir "always$n" --recompute full
    ended 0
    same "quiet$n" "always$n"

    flip 1 3 9 # the same wrong bits each time: on two ranks nobody can say whose they are
    start "$n" twice "${glue[@]}" --output-dir "twice$n" --audit 100%
    ended 77
    if [ "$n" -eq 2 ]; then
        grep -q "rank 0 on .* and rank 1 on .* computed wrongly in each attempt" twice.0 || complain "$(tail -n 2 twice.0)"
    else
        grep -q "step 3: rank 1 on .* computed wrongly twice" twice.0 || complain "$(tail -n 2 twice.0)"
    fi
    unset CAIRN_TEST_FLIP
    for dir in "quiet$n" "clean$n"; do # the optimizer of the second is sharded
        start "$n" verify verify "$dir"
        ended 0
        grep -q "4 steps computed again, up to step 4; all agree, as does 1 checkpoint" verify.0 ||
            complain "$dir: $(tail -n 2 verify.0)"
    done
done

# The launcher does not start again where a host is excluded and no other has its slots. Of two reports only the second
# counts when the first was removed.
export CAIRN_PEER_TIMEOUT=1h CAIRN_CONNECT_TIMEOUT=1h # no rank is lost here
flip 1 3 9
launched=("$CAIRN_BINARY" launch --ranks 2 --max-restarts 3 -- "${glue[@]}" --output-dir launched --recompute full)
expect 77 "${launched[@]}" --audit recompute
says "launched/audit-report.txt names a host that computes wrongly" "not started again" \
    "1 fault: rank 1 on" "rank 1 on localhost is excluded by --audit: see launched/audit-report.txt"
if grep -q 'starting again' <<<"$output"; then complain "a start on an excluded host: $output"; fi
rm launched/audit-report.txt
flip 0 4 9
expect 77 "${launched[@]}" --audit recompute
unset CAIRN_TEST_FLIP
expect 77 "${launched[@]}"
says "local rank 0 on"
if grep -q 'local rank 1 on' <<<"$output"; then complain "a repaired place is excluded: $output"; fi
rm launched/audit-report.txt
expect 0 "${launched[@]}"
same quiet2 launched

# Memory. damage RANK STEP TENSOR TURN BIT
damage() { export CAIRN_TEST_FLIP="$*"; }
saving=("${glue[@]}" --save-steps 1 --keep 9 --audit 100%)
damage 1 3 weights 50 77 # of one rank: the state of step 2 is not taken
start 2 damaged "${saving[@]}" --output-dir damaged
ended 78
for r in 0 1; do
    grep -q "step 3: the memory of rank 1 on .* changed since the last update. States of step 2 or later" "damaged.$r" ||
        complain "rank $r does not say it: $(tail -n 1 "damaged.$r")"
done
grep -q '"step": 3, "attempt": 1, .*"rank": 1, .*"gradients": "right", "changed": "weights", "element": 0, "excluded": false' \
    damaged/audit.jsonl || complain "audit.jsonl is wrong: $(cat damaged/audit.jsonl)"
has_file damaged/checkpoint-2/manifest.json damaged/damaged.json
unset CAIRN_TEST_FLIP
start 2 mended "${saving[@]}" --output-dir damaged
ended 0
grep -q "the states of steps 2 to 2 may be damaged" mended.0 || complain "the damaged state is not named: $(cat mended.0)"
grep -q "resuming from .*checkpoint-1" mended.0 || complain "another state is taken: $(cat mended.0)"
[ ! -e damaged/damaged.json ] || complain "the run is finished, and damaged.json is left"
same quiet2 damaged

# Any moment of step 2 on rank 1, by the turns of exec_turn: the two computations, the digest of the gradients before
# their sum, check, update, note, and the copies.
explained=$("$CAIRN_BINARY" plan --model-config tiny/config.json --backend ref --audit 100% --max-seq-length 32 \
    --batch-size 9 --explain 2>/dev/null)
count() { awk -v range="$1:" '$1 == range { print $2 }' <<<"$explained"; }
copies=$(awk '$1 == "update:" { on = 1 } on && $5 == "pack" { n++ } END { print n + 0 }' <<<"$explained")
damage 1 2 weights 0 0 # never: for the number of turns
start 2 turns "${saving[@]}" --output-dir turns
ended 0
turns=$(sed -n 's/.*step 2 had \([0-9]*\) turns/\1/p' turns.1)
moments=(computations digest check update note copies)
from=(1 0 0 0 0 0) to=(0 0 0 0 0 "$turns")
from[5]=$((turns - copies + 1)) from[4]=$((from[5] - $(count note))) from[3]=$((from[4] - $(count update) + copies))
from[2]=$((from[3] - $(count check))) from[1]=$((from[2] - 1))
for k in 0 1 2 3 4; do to[k]=$((from[k + 1] - 1)); done

# A gradient behind its sum, on one rank: its weights are not those of the other. Nobody knows whose are right.
damage 1 2 grads "${to[2]}" 30
start 2 apart "${saving[@]}" --output-dir apart
ended 78
grep -q "step 3: the weights of rank 0 on .* and rank 1 on .* are not those .*States of step 2 or later" apart.0 ||
    complain "not apart: $(tail -n 2 apart.0)"
[ "$(grep -c '"step": 3, .*"weights": "apart"' apart/audit.jsonl)" -eq 2 ] || complain "$(cat apart/audit.jsonl)"
unset CAIRN_TEST_FLIP
start 2 together "${saving[@]}" --output-dir apart
ended 0
same quiet2 apart

# The outcome of a flip: ended, repeated, harmless or unseen.
outcome() {
    local r code codes='' right=yes
    damage 1 2 "$1" "$2" "$3"
    rm -rf any
    start 2 any "${glue[@]}" --audit 100% --output-dir any
    for r in 0 1; do
        code=0
        wait "${ranks[r]}" || code=$?
        codes+="$code "
    done
    cmp -s turns/model.safetensors any/model.safetensors &&
        cmp -s turns/checkpoint-4/optimizer.safetensors any/checkpoint-4/optimizer.safetensors || right=no
    case "$codes$right" in
    "78 78 no") outcome=ended ;;
    "0 0 yes") if [ -e any/audit.jsonl ]; then outcome=repeated; else outcome=harmless; fi ;;
    "0 0 no") if [ -e any/audit.jsonl ]; then outcome=wrong; else outcome=unseen; fi ;;
    *) outcome="codes $codes" ;;
    esac
}
declare -A seen=()
RANDOM=7 flips=1
if [ -n "${CAIRN_TEST_DEEP:-}" ]; then flips=20; fi
for place in copies weights m v grads; do
    for k in "${!moments[@]}"; do
        for ((i = 0; i < flips; i++)); do
            if [ "$flips" -eq 1 ] && [ $((RANDOM % 4)) -gt 0 ]; then continue; fi
            turn=$((from[k] + (RANDOM * 32768 + RANDOM) % (to[k] - from[k] + 1))) bit=$((RANDOM * 32768 + RANDOM))
            outcome "$place" "$turn" "$bit"
            seen[$place ${moments[k]} $outcome]=$((${seen[$place ${moments[k]} $outcome]:-0} + 1))
            case "$outcome" in
            ended | repeated | harmless) ;;
            unseen) [ "$place ${moments[k]}" = "grads digest" ] || complain "$place, turn $turn (${moments[k]}), bit $bit: unseen" ;;
            *) complain "$place, turn $turn (${moments[k]}), bit $bit: $outcome" ;;
            esac
        done
    done
done
for key in "${!seen[@]}"; do echo "$key: ${seen[$key]}"; done | sort
unset CAIRN_TEST_FLIP

# The launcher names the rank, and starts again; without an earlier state training begins again.
damage 1 1 m 50 77
mapfile -t launched < <(printf '%s\n' "$CAIRN_BINARY" launch --ranks 2 --max-restarts 1 -- "${glue[@]}" --audit 100% --output-dir often)
expect 78 "${launched[@]}"
says "warning: rank 1 on localhost: --audit found damaged memory, see often/audit.jsonl; starting again" \
    "error: rank 1 on localhost: --audit found damaged memory" "2 faults: rank 1 on localhost (2)" \
    "states of steps 0 to 0 may be damaged: they are set aside"
[ "$(grep -c '"rank": 1, "host": "localhost", ' often/faults.jsonl)" -eq 2 ] || complain "$(cat often/faults.jsonl)"
damage 1 2 grads "${to[2]}" 30
expect 78 "$CAIRN_BINARY" launch --ranks 2 --max-restarts 0 -- "${glue[@]}" --audit 100% --output-dir unknown
says "1 fault: an unknown rank (1)" "error: --audit found damaged memory, but not of which rank: see unknown/audit.jsonl"
grep -q '"rank": -1, "host": "", .*"code": 78' unknown/faults.jsonl || complain "$(cat unknown/faults.jsonl)"
unset CAIRN_TEST_FLIP
expect 0 "${launched[@]}"
same quiet2 often

start 2 other verify quiet3
ended 2
grep -q "cairn launch --ranks 3 -- verify quiet3" other.0 || complain "other number of ranks: $(tail -n 1 other.0)"
expect 0 "$CAIRN_BINARY" launch --ranks 3 -- verify quiet3 --steps 2-3
says "3 steps computed again, up to step 3; all agree"

finish
