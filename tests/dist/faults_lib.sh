# Runs whose ranks are killed, frozen and signalled at random moments, until the same command ends without a fault, on top
# of snapshot_lib.sh.
# shellcheck shell=bash disable=SC2154 # work, memory, ranks, codes: snapshot_lib.sh
# shellcheck source=tests/dist/snapshot_lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/snapshot_lib.sh"
skip_without_gloo
exec 2>/dev/null # the shell reports every killed process
patiently
unset CAIRN_TEST_SPARE_WAIT # a frozen rank may hold the folder's lock

# shellcheck disable=SC2317 # by await
begun() { gone "${ranks[0]}" || holds log.0 'ing from'; }
# shellcheck disable=SC2317 # by await
under_way() { gone "${ranks[0]}" || reached "$1" "$2"; }
# others_gone: all but the frozen rank have ended.
# shellcheck disable=SC2317 # by await
others_gone() {
    local r
    for r in "${ranks[@]}"; do [ "$r" = "$frozen" ] || gone "$r" || return 1; done
}
# after_fault MET: ends what a frozen rank leaves. Ranks that have not MET wait long for a lost one: they are killed.
after_fault() {
    local r by
    if [ "$1" -eq 0 ]; then
        wait_until 3 others_gone || kill -9 "${ranks[@]}"
    elif [ -n "$frozen" ]; then
        for r in "${!ranks[@]}"; do
            [ "${ranks[r]}" = "$frozen" ] || continue
            for by in "${!ranks[@]}"; do silence "$by" "$r"; done
        done
        await others_gone
    fi
    if [ -n "$frozen" ]; then kill -9 "$frozen"; fi
    heard
}

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

# quiet N OUT COMMAND...: N ranks without a fault.
quiet() {
    quickly
    start_ranks "$1" log "${@:3}" --output-dir "$2"
    end_ranks
    case "${codes[*]}" in *[1-9]*) complain "$2: ${codes[*]}" && cat log.0 ;; esac
}

most_faults=1000000 # no fault after so many
faults=0 rounds=0 memory_used=0 disk_used=0 most_lost=0
# faulty N OUT EVERY COMMAND...: N ranks with snapshots at every EVERY-th step, again and again with a fault each, until all
# end with 0. A start loses 2 * EVERY steps at most.
faulty() {
    local n=$1 out=$2 every=$3 tries=0 before resumed lost good code met
    rounds=$((rounds + 1))
    slowly
    while :; do
        before=$(steps_in "$out")
        start_ranks "$n" log "${@:4}" --output-dir "$out" --snapshot-steps "$every"
        frozen='' tries=$((tries + 1))
        if [ "$faults" -lt "$most_faults" ]; then
            case $((RANDOM % 12)) in
            0) ;; # while ranks still connect, where the others wait long
            [1-6]) await begun ;;
            *) await under_way "$out" $((before + 1)) ;;
            esac
            pause $((100 + tries % 10 * 60))
            sleep "${CAIRN_TEST_PAUSE:-0}"
            met=0
            if holds log.0 'ing from'; then met=1; fi
            if fault; then
                faults=$((faults + 1))
                after_fault "$met"
            fi
        fi
        end_ranks
        resumed=$(sed -n 's/^resuming from .*: step \([0-9]*\) of .*/\1/p' log.0)
        if [ -n "$resumed" ] && [ "$before" -gt 0 ]; then
            lost=$((before - resumed))
            [ "$lost" -le "$most_lost" ] || most_lost=$lost
            [ "$lost" -le $((2 * every)) ] || { complain "$out lost $lost steps" && cat log.0; }
        elif [ "$before" -gt $((2 * every)) ] && grep -q 'starting from' log.0; then
            complain "$out started from the beginning after $before steps" && cat log.0
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
                complain "$out: an exit code of $code (${codes[*]})"
                tail -n 3 log.*
                ;;
            esac
        done
        if [ "$good" -eq 1 ]; then break; fi
        if [ "$tries" -gt 400 ]; then complain "$out: no end" && break; fi
    done
}

# summary: the counts; snapshots that are left are an error.
summary() {
    local left
    left=$(snapshots_left)
    [ "$left" -eq 0 ] || complain "$left snapshots remain: $(ls "$memory")"
    echo "$faults faults in $rounds runs: ${made[one]} times one rank was killed, ${made[two]} two, ${made[all]} all," \
        "${made[freeze]} frozen, ${made[signal]} signalled; resumed $memory_used times from memory, $disk_used from disk;" \
        "lost at most $most_lost steps"
}
