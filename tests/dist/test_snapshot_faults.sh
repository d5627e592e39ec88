#!/usr/bin/env bash
# Ranks are killed, frozen and signalled at random moments of starting, recovering, training and saving. Every fault
# ends all ranks with a documented exit code and without a hang, the same command resumes and loses few steps, and the
# result is bit-equal to a run without faults. CAIRN_TEST_FAULTS: number of faults (12; 60 under `test.sh deep`);
# CAIRN_TEST_PAUSE: seconds between them (0).
# shellcheck source=tests/dist/snapshot_lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/snapshot_lib.sh"
skip_without_gloo
exec 2>/dev/null # the shell reports every killed process

wanted=${CAIRN_TEST_FAULTS:-$(quick_or_deep 12 60)} rest=${CAIRN_TEST_PAUSE:-0} every=3 steps=${CAIRN_TEST_STEPS:-$(quick_or_deep 100 150)}
make_case
run=("${task[@]}" --max-steps "$steps" --bucket-size 16KiB --peer-timeout 2 --connect-timeout 10 --snapshot-steps "$every")
for n in 2 3; do
    start_ranks "$n" log "${run[@]}" --output-dir "whole$n"
    end_ranks
    [ "${codes[*]}" = "$(yes 0 | head -n "$n" | xargs)" ] || { complain "${codes[*]}" && cat log.0; }
done

# shellcheck disable=SC2317 # by await
begun() { gone "${ranks[0]}" || holds log.0 'ing from'; }

# fault: kills, freezes or signals ranks; `frozen` is the frozen one. Fails if the ranks had already ended.
declare -A made=([one]=0 [two]=0 [all]=0 [freeze]=0 [signal]=0)
fault() {
    local n=${#ranks[@]} who=$((RANDOM % ${#ranks[@]})) dice=$((RANDOM % 20)) kind signal=KILL whom r
    frozen='' whom=("${ranks[who]}")
    if [ "$dice" -lt 8 ]; then
        kind=one
    elif [ "$dice" -lt 10 ]; then
        kind=two whom+=("${ranks[(who + 1) % n]}")
    elif [ "$dice" -lt 16 ]; then
        kind=all whom=("${ranks[@]}")
    elif [ "$dice" -lt 17 ]; then
        kind=freeze signal=STOP frozen=${ranks[who]}
    else
        kind=signal r=(TERM INT USR1 USR2)
        signal=${r[RANDOM % 4]}
    fi
    kill -"$signal" "${whom[@]}" 2>/dev/null || return 1
    made[$kind]=$((made[$kind] + 1))
}

faults=0 round=0 memory_used=0 disk_used=0 most_lost=0
# A loaded machine rarely reaches a snapshot between two faults, and needs more of them.
more() { [ "$faults" -lt "$wanted" ] || { [ "$memory_used" -eq 0 ] && [ "$wanted" -ge 12 ] && [ "$faults" -lt $((3 * wanted)) ]; }; }
while more; do
    round=$((round + 1))
    n=$((2 + round % 2)) out=out$round tries=0
    while :; do
        before=$(steps_in "$out")
        start_ranks "$n" log "${run[@]}" --output-dir "$out"
        # one in twelve while ranks still connect, where the others wait long
        if [ $((RANDOM % 12)) -gt 0 ]; then await begun; fi
        pause $((100 + tries % 10 * 60))
        if [ "$rest" -gt 0 ]; then sleep "$rest"; fi
        tries=$((tries + 1))
        if fault; then faults=$((faults + 1)); fi
        if [ -n "${frozen:-}" ]; then
            for r in "${ranks[@]}"; do [ "$r" = "$frozen" ] || wait_until 30 gone "$r"; done
            kill -9 "$frozen"
            frozen=
        fi
        end_ranks
        resumed=$(sed -n 's/^resuming from .*: step \([0-9]*\) of .*/\1/p' log.0)
        if [ -n "$resumed" ] && [ "$before" -gt 0 ]; then
            lost=$((before - resumed))
            [ "$lost" -le "$most_lost" ] || most_lost=$lost
            [ "$lost" -le $((2 * every)) ] || { complain "lost $lost steps" && cat log.0; }
        elif [ "$before" -gt $((2 * every)) ] && grep -q 'starting from' log.0; then
            complain "started from the beginning after $before steps" && cat log.0
        fi
        if grep -q '^resuming from the snapshot' log.0; then memory_used=$((memory_used + 1)); fi
        if grep -q '^resuming from .*checkpoint-' log.0; then disk_used=$((disk_used + 1)); fi
        good=1
        for code in "${codes[@]}"; do
            case $code in
            0) ;;
            75 | 77 | 137 | 130 | 138 | 140 | 143) good=0 ;; # stopped, lost a rank, killed; a signal before the handlers
            *)
                good=0
                complain "an exit code of $code (${codes[*]})"
                tail -n 3 log.*
                ;;
            esac
        done
        if [ "$good" -eq 1 ]; then break; fi
        if [ "$tries" -gt 400 ]; then complain "no end" && break; fi
    done
    same_run "whole$n" "$out" "$steps"
    rm -rf -- "$out"
    if [ "$failures" -gt 5 ]; then break; fi
done
left=$(snapshots_left)
[ "$left" -eq 0 ] || complain "$left snapshots remain: $(ls "$memory")"
echo "$faults faults in $round runs: ${made[one]} times one rank was killed, ${made[two]} two, ${made[all]} all," \
    "${made[freeze]} frozen, ${made[signal]} signalled; resumed $memory_used times from memory, $disk_used from disk;" \
    "lost at most $most_lost steps"
[ "$memory_used" -gt 0 ] || [ "$wanted" -lt 12 ] || complain "no start resumed from memory"
exit $((failures > 0))
