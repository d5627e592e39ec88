#!/usr/bin/env bash
# `cairn launch` with four ranks on two hosts under random faults: a rank is killed, frozen, ends with an error, crashes or
# becomes ten times slower, a host's cable is cut. The right rank or host is named each time, by the launcher in
# faults.jsonl, of a slow rank by rank 0; the weights are bit-equal to those of a run without faults. bench/soak.sh runs
# this for hours, with the product's own time-outs (CAIRN_TEST_REAL_TIME). Here none passes by itself: the test says who
# is silent, for a frozen rank or a cut cable.
# CAIRN_TEST_FAULTS: number of faults (3; 60 under `test.sh deep`), CAIRN_TEST_SECONDS: no faults after that time,
# CAIRN_TEST_PAUSE: mean seconds from one to the next (0), CAIRN_TEST_STEPS: of a run, CAIRN_TEST_SEED, CAIRN_TEST_REPORT: a file
# that gets a line for each fault.
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/dist/hosts.sh
. "$here/hosts.sh"
exits=${CAIRN_TEST_BUILD_DIR:-$here/../../build}/tests/fakes/exits.so
[ -e "$exits" ] || { echo "skipped: $exits is not built" && exit 77; }
[ -n "${CAIRN_TEST_HOSTS:-}" ] || within_hosts 2 "$here/${0##*/}" "$@"
# shellcheck source=tests/dist/snapshot_lib.sh
. "$here/snapshot_lib.sh"
skip_without_gloo
within_hosts 2 "$0" "$@"

wanted=${CAIRN_TEST_FAULTS:-$(quick_or_deep 3 60)} rest=${CAIRN_TEST_PAUSE:-0} steps=${CAIRN_TEST_STEPS:-$(quick_or_deep 40 2000)}
report=${CAIRN_TEST_REPORT:-$work/report}
make_case
mkdir pids
printf 'h1 slots=2\nh2 slots=2\n' >four
cat >rank.sh <<'END2'
#!/usr/bin/env bash
echo "$$ $CAIRN_JOB_TOKEN" >>"$WORK/pids/rank$RANK"
[ -z "${CAIRN_TEST_SILENT:-}" ] || export CAIRN_TEST_SILENT=$WORK/silent$CAIRN_JOB_TOKEN. # of this start
export LD_PRELOAD=$EXITS ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0
exec "$CAIRN_BINARY" "$@" --snapshot-dir "$MEMORY/$(hostname)"
END2
chmod +x rank.sh
mkdir "$memory/h1" "$memory/h2"
if [ -n "${CAIRN_TEST_REAL_TIME:-}" ]; then
    patient=(--peer-timeout 3 --connect-timeout 20)
else
    patiently
    export CAIRN_TEST_SPARE_WAIT=$work/frozen CAIRN_TEST_RETRY=1h CAIRN_TEST_PACE_WINDOW=0.3s
fi
export WORK=$work MEMORY=$memory EXITS=$exits CAIRN_TEST_PROGRAM=$work/rank.sh
run=("${task[@]}" --max-steps "$steps" "${patient[@]}" --snapshot-steps 3
    --save-every 10s --schedule constant)
for i in "${!run[@]}"; do # rank.sh gives each host a folder of its own
    if [ "${run[i]}" = --snapshot-dir ]; then unset "run[i]" "run[i+1]"; fi
done

# apart RANK...: these ranks and the others do not hear each other from now on.
apart() {
    local a b
    for a in "$@"; do
        for b in 0 1 2 3; do [[ " $* " == *" $b "* ]] || touch "silent$token.$a-$b" "silent$token.$b-$a"; done
    done
}

# launch DIR: in the background
launch() {
    "$CAIRN_BINARY" launch --ranks 4 --hosts four --max-restarts 1000000 -- "${run[@]}" --output-dir "$1" >launch.out 2>&1 </dev/null &
    launcher=$!
}
# launched: the launcher's exit code
launched() {
    local code=0
    wait "$launcher" || code=$?
    return "$code"
}
now() { local t=$EPOCHREALTIME && echo $((${t/[.,]/} / 1000)); } # ms

begin=$(now)
launch whole
launched || { complain "the quiet run ended with $?" && cat launch.out; }
quiet=$(($(now) - begin))

# shellcheck disable=SC2317 # by wait_until
started() { # all four have a process since the last fault
    local r lines
    for r in 0 1 2 3; do
        count_lines "pids/rank$r"
        [ "$lines" -gt "${starts[r]:-0}" ] || return 1
    done
}
# shellcheck disable=SC2317 # by wait_until
over() { gone "$launcher"; }
under_way() { over || { started && reached "$out" $((seen + 3)); }; }
# shellcheck disable=SC2317 # by wait_until
recovered() { # the run has made step $1 again; a job that ended with an error begins again
    if over; then launched || launch "$out"; fi
    over || { started && reached "$out" "$1"; }
}
# shellcheck disable=SC2317 # by wait_until
blamed() { # the launcher has written its line, or the run was over before the fault
    local lines
    if reached "$out" "$steps"; then kill -CONT "$pid" 2>/dev/null; fi # frozen after its last step, it may be the only one left
    over || { count_lines "$out/faults.jsonl" && [ "$lines" -gt "$told" ]; }
}

# shellcheck disable=SC2317 # by wait_until
named_slow() { over || holds launch.out "rank $turn on $host (10.77.0.${host#h}) is slow: "; }

kinds=(slow kill cut freeze exit SEGV) # slow first: it takes three windows of two seconds to be named
alarms=0 # slow ranks that were not slowed down
faults=0 wrong=0 round=0 idle=0 worst=0 useful=0 spent=0 at=0 turn=$((RANDOM % 4))
deadline=$((SECONDS + ${CAIRN_TEST_SECONDS:-100000}))
more() { [ "$faults" -lt "$wanted" ] && [ "$SECONDS" -lt "$deadline" ] && [ "$failures" -lt 5 ]; }
while more; do
    round=$((round + 1)) out=out$round seen=0 told=0 tries=0 had=$faults
    begin=$(now)
    rm -f pids/rank*
    starts=()
    launch "$out"
    until over && launched; do
        tries=$((tries + 1))
        if over; then launch "$out"; fi # a rank's own error ends the job
        if [ "$tries" -gt 3000 ]; then complain "no end" && break; fi
        wait_until "$hang_limit" under_way || { complain "the run does not go on" && tail -n 20 launch.out && break; }
        if ! more; then
            quickly
            wait_until "$hang_limit" over || complain "the run does not end"
            continue
        fi
        left=$((at + rest * 500 + RANDOM % (rest * 1000 + 500) - $(now))) # from fault to fault
        if [ "$left" -gt 0 ]; then sleep "$((left / 1000)).$((left % 1000 / 100))"; fi
        if over || ! more; then continue; fi
        count_lines "$out/faults.jsonl" && told=$lines
        kind=${kinds[faults % ${#kinds[@]}]} turn=$(((turn + 1 + RANDOM % 3) % 4))
        host=h$((turn / 2 + 1)) seen=$(steps_in "$out")
        read -r pid token < <(tail -n 1 "pids/rank$turn")
        name="\"rank\": $turn, \"host\": \"$host\","
        at=$(now)
        # A step takes 50 ms or more where that is no fault, or the run would end before the test can look.
        if [ "$kind" = slow ] || [ -n "${CAIRN_TEST_REAL_TIME:-}" ]; then quickly; else slowly; fi
        if [ "$kind" = slow ]; then
            before=$(grep -c ' is slow: ' launch.out)
            touch "$CAIRN_TEST_SLOW$turn"
            wait_until "$hang_limit" named_slow || { complain "slow rank $turn: not named" && wrong=$((wrong + 1)) && tail -n 20 launch.out; }
            rm "$CAIRN_TEST_SLOW$turn"
            if over; then continue; fi
            faults=$((faults + 1))
            alarms=$((alarms + $(grep -c ' is slow: ' launch.out) - before - 1))
            echo "$(date +%s) $round $kind $turn $host $(($(now) - at)) $(grep ' is slow: ' launch.out | tail -n 1)" >>"$report"
            continue
        fi
        for r in 0 1 2 3; do count_lines "pids/rank$r" && starts[r]=$lines; done
        case $kind in
        kill) kill -KILL "$pid" ;;
        freeze)
            kill -STOP "$pid" && wait_until "$hang_limit" stopped "$pid"
            : >frozen # it may have the folder's lock
            apart "$turn"
            ;;
        exit) kill -s RTMIN "$pid" ;;
        SEGV) kill -SEGV "$pid" ;;
        cut)
            # Both sides say that they do not hear the other: of two that are as large, that of rank 0 goes on.
            ip link set "to${host#h}" down && name='"rank": -1, "host": "h2",'
            apart $((turn / 2 * 2)) $((turn / 2 * 2 + 1))
            ;;
        esac 2>/dev/null || continue
        wait_until "$hang_limit" blamed || { complain "$kind of rank $turn: nothing is told" && tail -n 20 launch.out; }
        rm -f frozen
        if [ "$kind" = cut ]; then ip link set "to${host#h}" up; fi
        count_lines "$out/faults.jsonl"
        if [ "$lines" -le "$told" ]; then continue; fi # the run's end came first
        faults=$((faults + 1))
        if ! tail -n 1 "$out/faults.jsonl" | grep -qF -- "$name"; then
            wrong=$((wrong + 1))
            complain "$kind of rank $turn on $host: $(tail -n 1 "$out/faults.jsonl")"
        fi
        wait_until "$hang_limit" recovered $((seen + 1)) || complain "no new step after $kind of rank $turn: $(tail -n 5 launch.out)"
        took=$(($(now) - at))
        [ "$took" -le "$worst" ] || worst=$took
        echo "$(date +%s) $round $kind $turn $host $took $(tail -n 1 "$out/faults.jsonl")" >>"$report"
        seen=$(steps_in "$out")
    done
    before=$failures
    same_run whole "$out" "$steps"
    if [ "$failures" -gt "$before" ]; then # a wrong bit is rare: it must be found from what there is
        mkdir -p "$report.differs" && cp -r whole "$out" launch.out "$report.differs/"
        echo "both runs are kept in $report.differs" && break
    fi
    [ "$(json_number "$out/eval_results.json" accuracy)" = "$(json_number whole/eval_results.json accuracy)" ] || complain "other results"
    count_lines "$out/faults.jsonl"
    spent=$((spent + $(now) - begin))
    useful=$((useful + quiet))
    echo "$faults faults, $wrong blamed wrongly, $alarms false alarms of slow ranks, $round runs bit-equal; worst recovery $((worst / 1000)).$((worst % 1000 / 100)) s;" \
        "quiet runs would take $((100 * useful / spent)) % of the time" | tee -a "$report"
    rm -rf -- "$out"
    if [ "$faults" -gt "$had" ]; then idle=0; else idle=$((idle + 1)); fi
    if [ "$idle" -eq 5 ]; then complain "five runs ended before a fault: CAIRN_TEST_STEPS is too small" && break; fi
done
[ "$(snapshots_left)" -eq 0 ] || complain "snapshots remain: $(find "$memory")"
finish
