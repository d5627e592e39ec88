#!/usr/bin/env bash
# While the survivors of a lost rank save together, another of them is killed or frozen, at a given point of the save.
# The others save at once, in a spare folder where a frozen rank holds the folder's lock. tests/sim has what becomes of the
# other points; here is that of the data, which resume with the bits of a run that was never stopped.
# shellcheck source=tests/dist/snapshot_lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/snapshot_lib.sh"
skip_without_gloo
exec 2>/dev/null # the shell reports every killed process

patiently
make_case
mkdir text && mv ./*.tsv config.json vocab.txt text
steps=12
run=(glue --data-dir "$work/text" --model-config "$work/text/config.json" --vocab "$work/text/vocab.txt" --do-train --do-eval
    --backend ref --threads 1 --max-seq-length 32 --batch-size 4 --learning-rate 1e-3 --save-every 1h --bucket-size 16KiB
    --schedule constant --warmup 0 --max-steps "$steps" "${patient[@]}")
whole=$work
checkpoints() { find "$1" -maxdepth 1 -name 'checkpoint-*' -printf '%f\n' | sort | tr '\n' ' '; }
failed_before=0
show() {
    [ "$failures" -eq "$failed_before" ] || { failed_before=$failures && tail -n 4 log.*; }
}
# freezes RANK: once it has stopped itself, it is silent for the others.
freezes() {
    local r
    await stopped "${ranks[$1]}"
    for r in "${!ranks[@]}"; do [ "$r" = "$1" ] || silence "$r" "$1"; done
}

# fault N LOST AT FLAG...: N ranks, of which LOST is killed after step 5, and the others meet AT ("PLACE-RANK=kill …").
# Ranks that are stopped AT a place stay so until all others have ended with 77; then they go on. They count as frozen only
# when those of $seen ("PLACE-RANK=stop …") have come to their place, from which they go on. No time-out passes, so that the
# others do not wait for a rank that is gone.
fault() {
    local n=$1 lost=$2 at=$3 r those
    shift 3
    out=out$((++outs)) name="$* $at"
    codes=()
    export CAIRN_TEST_SPARE_WAIT=1h
    [[ $at != *-0=stop* ]] || CAIRN_TEST_SPARE_WAIT=0s # rank 0 has the folder's lock
    also="$at ${seen:-}" start_stopped 6 "$n" log "${run[@]}" --output-dir "$out" --snapshot-dir "$memory" "$@"
    kill_stopped "$lost"
    # shellcheck disable=SC2086 # words
    those=$(printf '%s\n' $seen | sed -n 's/.*-\([0-9]*\)=.*/\1/p')
    for r in $those; do await stopped "${ranks[r]}"; done
    for ((r = 0; r < n; r++)); do
        [[ $at != *-$r=stop* ]] || freezes "$r"
    done
    for r in $those; do kill -CONT "${ranks[r]}"; done
    for ((r = 0; r < n; r++)); do
        [[ $at == *-$r=stop* ]] && continue
        wait_until "$hang_limit" gone "${ranks[r]}" || complain "$name: rank $r hangs"
        wait "${ranks[r]}"
        codes[r]=$?
    done
    for ((r = 0; r < n; r++)); do
        if [[ $at == *-$r=stop* ]]; then
            stopped "${ranks[r]}" || complain "$name: rank $r is not frozen"
            kill -CONT "${ranks[r]}"
            wait_until "$hang_limit" gone "${ranks[r]}" || complain "$name: rank $r hangs after its stop"
            wait "${ranks[r]}"
            codes[r]=$?
        fi
        if [ "$r" = "$lost" ] || [[ $at == *-$r=kill* ]]; then continue; fi
        [ "${codes[r]}" -eq 77 ] || complain "$name: rank $r ended with ${codes[r]}"
    done
    heard
}
outs=0 seen=''

# tells RANK TEXT...
tells() {
    local r=$1 text
    shift
    for text in "$@"; do grep -q -e "$text" "log.$r" || complain "$name: rank $r does not say '$text'"; done
}
# saved PATTERN [SPARE]: the folder, or a spare one in it, has one checkpoint alone, of the step that a log tells with
# PATTERN behind it
saved() {
    local folder=$out${2:-}
    step=$(sed -n "s|.*Step \([0-9]*\) of $steps is saved in $folder$1; the same.*|\1|p" log.? | head -n 1)
    { [ "${step:-0}" -gt 0 ] && [ "$(checkpoints "$folder")" = "checkpoint-$step " ]; } ||
        complain "$name: step '$step' was saved$1, $folder has $(checkpoints "$folder")"
}
# resumes FLAG...: resumes the run from this checkpoint, and compares it with a run that was never stopped.
resumes() {
    rm -f "$memory"/*/cairn-* "$memory"/cairn-*
    start_ranks "${#ranks[@]}" log "${run[@]}" --output-dir "$out" --snapshot-dir "$memory" "$@"
    end_ranks
    [ "$(tr -d ' 0' <<<"${codes[*]}")" = '' ] || complain "$name: ${codes[*]} when it resumed"
    grep -q "^resuming from .*checkpoint-$step: step $step of" log.0 || complain "$name: it did not resume from step $step"
    same_run "$whole/whole${#ranks[@]}" "$out" "$steps"
}

for n in 3 4; do
    start_ranks "$n" log "${run[@]}" --output-dir "whole$n" --snapshot-steps 0
    end_ranks
    [ "$(tr -d ' 0' <<<"${codes[*]}")" = '' ] || { complain "${codes[*]}" && tail -n 3 log.*; }
done

# The rank that leads is killed: another one leads in its place.
leads_and_dies() {
    fault 4 3 'planned-0=kill' --snapshot-steps 0
    saved ' by 2 ranks'
    tells 1 'rank 0 on .* leads the save no more'
    tells 2 "rank 1 on .* saved step $step"
    resumes --snapshot-steps 0
    show
    # The disk is ahead of memory: nothing is written.
    fault 4 3 '' --shard optimizer --snapshot-steps 2 --save-steps 1
    tells 0 'Step [0-9]* is saved already'
    tells 1 'rank 0 on .* has the state on disk'
    show
}

# The rank that leads freezes, and holds the lock: the other one saves beside. When it goes on, rank 1 has written its
# part, and has left. Both checkpoints have one step, and one is kept.
leads_and_freezes() {
    seen=wrote-1=stop
    fault 3 2 'planned-0=stop' --snapshot-steps 0
    seen=''
    saved ' by 2 ranks'
    tells 1 "Step $step of $steps is saved in $out/survivors/0;"
    resumes --snapshot-steps 0
    [ ! -e "$out/survivors" ] || complain "$name: the spare folder is left"
    show
}

# A writer freezes: another rank has its slices in its host's memory.
writer_freezes() {
    fault 4 3 write-1=stop --shard optimizer --snapshot-steps 3
    saved ' by 2 ranks'
    tells 0 'rank 1 on .* did not write its part: it has ended or is frozen'
    show
    resumes --shard optimizer --snapshot-steps 3
    show
}

# A survivor is killed at a random moment of the save. Then the folder must have the old checkpoint or a complete new
# one, and the resumed run must end with the bits of a run that was never stopped.
at_random() {
    local rounds=${CAIRN_TEST_FAULTS:-$(quick_or_deep 1 100)} round r lost second flags during=0 new=0 joint=0 led=0
    for ((round = 1; round <= rounds; round++)); do
        out=random$round lost=$((RANDOM % 4)) second=$(((lost + 1 + RANDOM % 3) % 4)) flags=(--snapshot-steps 0)
        if [ $((round % 2)) -eq 0 ]; then flags=(--shard optimizer --snapshot-steps 3); fi
        flags+=(--save-steps 2 --snapshot-dir "$memory") # step 2 is saved before the save of step 4 begins
        name="round $round: $lost, then $second, ${flags[*]}"
        rm -f "$memory"/cairn-*
        start_stopped 6 4 log "${run[@]}" --output-dir "$out" "${flags[@]}"
        kill_stopped "$lost"
        pause 350
        kill -9 "${ranks[second]}"
        end_ranks
        [ "${codes[second]}" -eq 77 ] || during=$((during + 1))
        for r in 0 1 2 3; do
            if [ "$r" -ne "$lost" ] && [ "$r" -ne "$second" ] && [ "${codes[r]}" -ne 77 ]; then
                complain "$name: rank $r ended with ${codes[r]}"
            fi
        done
        if grep -q "is saved in $out" log.?; then new=$((new + 1)); fi
        if grep -q "is saved in $out by" log.?; then joint=$((joint + 1)); fi
        if grep -q "rank $second .* leads the save no more" log.?; then led=$((led + 1)); fi
        [ -n "$(compgen -G "$out/checkpoint-*/manifest.json")" ] || complain "$name: no checkpoint is left"
        show
        rm -f "$memory"/cairn-*
        start_ranks 4 log "${run[@]}" --output-dir "$out" "${flags[@]}"
        end_ranks
        [ "${codes[*]}" = "0 0 0 0" ] || complain "$name: ${codes[*]} when it resumed"
        grep -q "^resuming from .*checkpoint-" log.0 || complain "$name: it did not resume"
        if grep -q "ignored\|damaged" log.0; then complain "$name: a checkpoint is damaged"; fi
        same_run "$whole/whole4" "$out" "$steps"
        show
        rm -rf "$out"
    done
    echo "$rounds kills of a second rank: $during while it saved, $led of them of the rank that led; $new saves by those that were left, $joint by several"
}

# Rank 0 freezes in a step, and never goes on: the others save in a spare folder, which the next start takes. A
# second one freezes there at times, while it leads their save: the next spare folder is used.
never_goes_on() {
    local rounds=${CAIRN_TEST_FREEZES:-$(quick_or_deep 1 30)} round r flags spare at
    export CAIRN_TEST_SPARE_WAIT=0s # each lock is that of a frozen rank
    for ((round = 1; round <= rounds; round++)); do
        out=frozen$round flags=(--snapshot-steps 0) spare=0 at=''
        if [ $((round % 2)) -eq 1 ]; then flags=(--shard optimizer --snapshot-steps 3); fi
        if [ $((round % 3)) -eq 1 ]; then at='planned-1=stop' spare=1; fi
        name="round $round: $at ${flags[*]}"
        rm -f "$memory"/cairn-*
        # By step 7 the snapshot of step 3 is complete: that of step 6 waited for it.
        also=$at start_stopped 7 4 log "${run[@]}" --output-dir "$out" --snapshot-dir "$memory" "${flags[@]}"
        kill -CONT "${ranks[@]:0:3}" # the step does not end without rank 3
        pause 100
        kill -STOP "${ranks[0]}"
        await stopped "${ranks[0]}"
        kill -CONT "${ranks[3]}"
        freezes 0
        if [ "$spare" -eq 1 ]; then freezes 1; fi
        for r in 1 2 3; do
            if [ "$r" -gt "$spare" ]; then wait_until "$hang_limit" gone "${ranks[r]}" || complain "$name: rank $r hangs"; fi
        done
        kill -9 "${ranks[0]}"
        if [ "$spare" -eq 1 ]; then # the folder's lock is free, that of the spare folder is not
            await gone "${ranks[0]}"
            if CAIRN_TEST_LOCK_WAIT=0s "$CAIRN_BINARY" "${run[@]}" --output-dir "$out" >log.next 2>&1; then
                complain "$name: a start took what a rank still writes"
            fi
            holds log.next "$out/survivors/0: this output folder is in use by process ${ranks[1]} on host " ||
                complain "$name: $(tail -n 1 log.next)"
            kill -9 "${ranks[1]}"
        fi
        heard
        end_ranks
        [ "${codes[3]}" -eq 77 ] || complain "$name: rank 3 ended with ${codes[3]}"
        saved '.*' "/survivors/$spare"
        resumes --save-steps 4 "${flags[@]}"
        [ ! -e "$out/survivors" ] || complain "$name: the spare folder is left"
        show
        rm -rf "$out"
    done
}

# As two hosts: ranks 0 and 1 share a memory, and ranks 2 and 3. Rank 3 has the slices of rank 2.
two_hosts() {
    mkdir "$memory/0" "$memory/1"
    start_ranks() {
        local n=$1 log=$2 r
        shift 2
        ranks=()
        serve_rendezvous "$n"
        for ((r = 0; r < n; r++)); do
            RANK=$r WORLD_SIZE=$n LOCAL_RANK=$r LOCAL_WORLD_SIZE=$n CAIRN_RENDEZVOUS=$met_at CAIRN_JOB_TOKEN=$token \
                "$CAIRN_BINARY" "$@" --snapshot-dir "$memory/$((r / 2))" >"$log.$r" 2>&1 </dev/null &
            ranks[r]=$!
        done
    }
    fault 4 0 'write-2=kill' --shard optimizer --snapshot-steps 3
    saved ' by 2 ranks'
    tells 1 'rank 2 on .* did not write its part: it has ended'
    tells 3 "rank 1 on .* saved step $step"
    resumes --shard optimizer --snapshot-steps 3
    show
}

# own_memory COMMAND: with a memory of its own, and in silence of its own
own_memory() {
    memory=$memory/$1
    mkdir "$memory"
    patiently
    "$@"
}
for case in leads_and_dies leads_and_freezes writer_freezes at_random never_goes_on two_hosts; do
    beside own_memory $case
done
together
finish
