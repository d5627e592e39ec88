#!/usr/bin/env bash
# One rank, kill -9 at random moments, many times: the same command resumes from memory, and ends with the bytes of an
# uninterrupted run. A run writes to disk only at its end, and soon after it resumed from memory.
# shellcheck source=tests/dist/snapshot_lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/snapshot_lib.sh"

kills_wanted=$(quick_or_deep 12 140)
make_case
run=("${task[@]}" --max-steps 60) long=("${task[@]}" --max-steps 100000)
expect 0 "$CAIRN_BINARY" "${run[@]}" --output-dir whole --snapshot-steps 0

# killed_at STEP OUT FLAG...: a run in the folder OUT that is killed after step STEP.
killed_at() {
    CAIRN_TEST_AT="step$(($1 + 1))-0=kill" "$CAIRN_BINARY" "${long[@]}" --output-dir "$2" "${@:3}" >/dev/null 2>log
}

# Every second kill is at any moment, the others before a random step. The latter leave a snapshot.
kills=0 from_memory=0 rounds=0
while [ "$kills" -lt "$kills_wanted" ]; do
    rounds=$((rounds + 1))
    out=killed$rounds every=$((rounds % 4 + 1)) tries=0 behind=
    while :; do
        at=
        if [ $((tries % 2)) -eq 0 ]; then at=step$(($(steps_in "$out") + 12 + RANDOM % 20))-0=kill; fi
        CAIRN_TEST_AT=$at "$CAIRN_BINARY" "${run[@]}" --output-dir "$out" --snapshot-steps "$every" >/dev/null 2>log &
        child=$!
        if [ -z "$at" ]; then
            pause $((60 + tries * 3))
            kill -9 "$child" 2>/dev/null
        fi
        tries=$((tries + 1)) code=0
        wait "$child" 2>/dev/null || code=$?
        if grep -q '^memory (' log; then from_memory=$((from_memory + 1)) behind=1; fi
        if [ "$code" -ne 137 ]; then break; fi
        kills=$((kills + 1))
        if [ -z "$behind" ] && [ -d "$out" ] && find "$out" -maxdepth 1 -name 'checkpoint-*' ! -name '*.tmp' | grep -qv checkpoint-60; then
            complain "a checkpoint was written before the end, but no start resumed from memory"
        fi
    done
    [ "$code" -eq 0 ] || { complain "exit code $code" && cat log; }
    same_run whole "$out" 60
    [ "$(snapshots_left)" -eq 0 ] || complain "the snapshot of a finished run remains: $(ls "$memory")"
done
echo "$kills kills in $rounds runs, $from_memory starts resumed from memory"
[ "$from_memory" -ge "$rounds" ] || complain "a start after a kill before step 12 or later did not resume from memory"

# shellcheck disable=SC2317 # by await
saved_once() { compgen -G 'resumed/checkpoint-*[0-9]/manifest.json' >/dev/null; }

# The log has the number of lost steps: at most those since the last snapshot.
killed_at 23 resumed --snapshot-steps 5
before=$(steps_in resumed)
expect 0 "$CAIRN_BINARY" snapshot list --snapshot-dir "$memory"
says "$(readlink -f resumed)" dead
"$CAIRN_BINARY" "${long[@]}" --output-dir resumed --snapshot-steps 5 >/dev/null 2>log &
child=$!
await holds log 'resuming from'
step=$(sed -n 's/^memory ([^)]*) holds step \([0-9]*\) of this run.*/\1/p' log)
lost=$(sed -n 's/.*there is no checkpoint: \([0-9]*\) steps* \(is\|are\) lost.*/\1/p' log)
{ [ "$((step + lost))" -eq "$before" ] && [ "$((step % 5))" -eq 0 ]; } || { complain "step $step, lost $lost, made $before" && cat log; }

# The disk is behind memory, so one checkpoint follows the first new snapshot, whatever --save-every says.
await saved_once
saved=$(find resumed -name 'checkpoint-*' -printf '%f\n')
saved=${saved#checkpoint-}
[ "$saved" -gt "$step" ] || complain "resumed from $step, saved step $saved"
await reached resumed "$((saved + 20))"
[ "$(find resumed -name 'checkpoint-*' -printf '%f\n')" = "checkpoint-$saved" ] || complain "saved again: $(ls resumed)"

# While the process lives its snapshot is listed as alive, and neither discarded nor persisted.
await reached resumed "$((before + 6))"
expect 0 "$CAIRN_BINARY" snapshot list --snapshot-dir "$memory"
says "alive"
expect 1 "$CAIRN_BINARY" snapshot persist --snapshot-dir "$memory" --output-dir resumed
says "is alive"
expect 1 "$CAIRN_BINARY" snapshot discard --snapshot-dir "$memory" --output-dir resumed
says "is alive"

# --persist-file: the state is on disk, and the snapshot is removed.
kill -9 "$child"
wait "$child" 2>/dev/null
"$CAIRN_BINARY" "${long[@]}" --output-dir resumed --snapshot-steps 5 --persist-file error.txt >/dev/null 2>log &
child=$!
await holds log 'resuming from'
touch error.txt
code=0
wait "$child" || code=$?
[ "$code" -eq 75 ] || complain "exit code $code after --persist-file appeared"
[ "$(find resumed -name 'checkpoint-*' -printf '%f\n')" != "checkpoint-$saved" ] || complain "no checkpoint after --persist-file"
[ "$(snapshots_left)" -eq 0 ] || complain "the snapshot of a saved run remains: $(ls "$memory")"

# A snapshot file that another process removes is named, once, and training continues.
"$CAIRN_BINARY" "${run[@]}" --output-dir bare --max-steps 100000 --snapshot-steps 1 >/dev/null 2>log &
child=$!
await reached bare 5
rm -f "$memory"/cairn-*
await holds log 'another process removed the file'
await reached bare "$(($(steps_in bare) + 5))"
kill "$child"
wait "$child" || true
[ "$(grep -c 'another process removed the file' log)" -eq 1 ] || { complain "not one warning" && cat log; }
holds log 'SIGTERM at step' || { complain "the last line is not the stop's" && cat log; }
rm -rf bare

# Another run: a folder that was removed and recreated, or --resume never.
killed_at 5 other --snapshot-steps 1
mv other gone
expect 0 "$CAIRN_BINARY" "${run[@]}" --output-dir other --snapshot-steps 1
says "trained 60 steps"
if grep -q '^memory' <<<"$output"; then complain "another run's snapshot was taken"; fi
same_run whole other 60
rm -rf other gone
killed_at 5 other --snapshot-steps 1
expect 0 "$CAIRN_BINARY" "${task[@]}" --output-dir other --snapshot-steps 0 --resume never --max-steps 3
expect 0 "$CAIRN_BINARY" "${run[@]}" --output-dir other --snapshot-steps 0 --override
if grep -q '^memory' <<<"$output"; then complain "a snapshot from before --resume never was taken"; fi

# Other flags: refused as for a checkpoint, and taken with --override.
rm -rf other
killed_at 5 other --snapshot-steps 1
expect 2 "$CAIRN_BINARY" "${long[@]}" --output-dir other --seed 9
says "the snapshot of step" "other flags"
expect 0 "$CAIRN_BINARY" "${task[@]}" --output-dir other --seed 9 --override --max-steps 20
says "resuming from the snapshot of step"
[ "$(snapshots_left)" -eq 0 ] || complain "the snapshot of an earlier process remains"

# persist writes the bytes of an ordinary save of that step.
rm -rf other
killed_at 5 other --snapshot-steps 1
expect 0 "$CAIRN_BINARY" snapshot persist --snapshot-dir "$memory" --output-dir other
checkpoint=$(cat .stdout)
step=${checkpoint##*-}
"$CAIRN_BINARY" "${long[@]}" --output-dir saved --save-steps "$step" --keep 1000 >/dev/null 2>log &
child=$!
await test -e "saved/checkpoint-$step"
kill -9 "$child"
wait "$child" 2>/dev/null
sed 's/"output-dir": "[^"]*"//; s/"save-steps": [0-9]*//; s/"keep": [0-9]*//; s/"snapshot-steps": "[^"]*"//' "$checkpoint/state.json" >a.json
sed 's/"output-dir": "[^"]*"//; s/"save-steps": [0-9]*//; s/"keep": [0-9]*//; s/"snapshot-steps": "[^"]*"//' "saved/checkpoint-$step/state.json" >b.json
diff a.json b.json || complain "state.json of persist differs"
for file in model.safetensors optimizer.safetensors config.json vocab.txt; do
    cmp "$checkpoint/$file" "saved/checkpoint-$step/$file" || complain "persist wrote another $file"
done
expect 0 "$CAIRN_BINARY" snapshot discard --snapshot-dir "$memory"
[ "$(snapshots_left)" -eq 0 ] || complain "files remain after discard: $(ls -A "$memory")"

# A file that is removed: every later snapshot fails, the run does not, and says so once.
CAIRN_TEST_AT="step4-0=stop" "$CAIRN_BINARY" "${task[@]}" --max-steps 40 --output-dir torn --snapshot-steps 1 >/dev/null 2>log &
child=$!
await stopped "$child"
rm "$memory"/cairn-*
kill -CONT "$child"
wait "$child" || complain "a run whose snapshot was removed ended with $?: $(tail -n 3 log)"
[ "$(grep -c 'is discarded on all ranks.*another process removed the file' log)" -eq 1 ] ||
    complain "snapshots that fail one after another: $(grep -c discarded log) messages: $(grep -m 2 discarded log)"
exit $((failures > 0))
