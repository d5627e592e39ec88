#!/usr/bin/env bash
# `cairn launch` with real ranks: a frozen rank, a rank that dies as it starts, a frozen agent, closed standard streams.
set -uo pipefail
# shellcheck source=tests/dist/ranks.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/ranks.sh"

make_tiny_bert tiny
glue=(glue --model-config tiny/config.json --vocab tiny/vocab.txt --data-dir "$sample" --do-train
    --backend ref --batch-size 27 --schedule constant --threads 1)

# The program of each rank writes its process id; rank 1 of the first start dies at once where $DIES is set, rank
# $FREEZES freezes.
cat >rank.sh <<'END2'
#!/usr/bin/env bash
echo $$ >>"$WORK/pids/rank$RANK"
[ "$FREEZES" != "$RANK" ] || kill -STOP $$
[ "$DIES$RANK" != yes1 ] || [ "$(wc -l <"$WORK/pids/rank1")" -gt 1 ] || kill -9 $$
exec "$CAIRN_BINARY" "$@"
END2
chmod +x rank.sh
export WORK=$work CAIRN_TEST_PROGRAM=$work/rank.sh DIES='' FREEZES=''
begin() { # begin LAUNCH-FLAGS... -- COMMAND...: in the background
    rm -rf pids && mkdir pids
    "$CAIRN_BINARY" launch --ranks 3 "$@" >launch.out 2>&1 &
    launcher=$!
}
ended() { # ended CODE [SECONDS]: the launcher ends with this code, within a minute: far above what it takes
    local code=0
    wait_until "${2:-60}" gone "$launcher" || { complain "launch does not end" && kill -9 "$launcher"; }
    wait "$launcher" || code=$?
    [ "$code" -eq "$1" ] || complain "launch ended with $code instead of $1: $(tail -n 5 launch.out)"
    output=$(cat launch.out)
    all_gone pids/*
}
# advanced_by N DIR: N more steps than at its last success
seen=0
# shellcheck disable=SC2317 # by wait_until
advanced_by() {
    local now
    now=$(losses "$2" 2>/dev/null | wc -l)
    [ "$now" -ge $((seen + $1)) ] && seen=$now
}
# shellcheck disable=SC2317 # by wait_until
under_way() { [ "$(losses "$1" 2>/dev/null | wc -l)" -ge 3 ]; }

# ---- frozen ranks, with --peer-timeout of the command. Rank 0 holds the folder's lock: the others save beside. Of two
# that freeze at the same time both are named, as soon as one would be, wherever the ranks meet ----
frozen() { # frozen RENDEZVOUS PEER-TIMEOUT SAVED RANK...
    local where=$1 timeout=$2 saved=$3 rank out
    shift 3
    out=frozen$(printf %s "$@")
    begin --rendezvous "$where" -- "${glue[@]}" --max-steps 100000 --output-dir "$out" --peer-timeout "$timeout"
    wait_until 60 under_way "$out" || complain "the run does not begin: $(cat launch.out)"
    for rank; do kill -STOP "$(cat "pids/rank$rank")"; done
    ended 77
    says "$saved" "$# fault$([ $# -eq 1 ] || echo s): rank "
    for rank; do
        grep -q "^error: .*rank $rank on localhost was frozen (silent for $timeout s), and was killed" launch.out &&
            grep -q "\"start\": 0, \"rank\": $rank, \"host\": \"localhost\", \"what\": \"rank $rank on localhost was frozen" \
                "$out/faults.jsonl" || complain "rank $rank is not named: $(cat launch.out "$out/faults.jsonl")"
    done
    [ "$(wc -l <"$out/faults.jsonl") $(grep -c ending_s "$out/faults.jsonl")" = "$# 1" ] || complain "faults.jsonl: $(cat "$out/faults.jsonl")"
}
frozen auto 5 'is saved in frozen0/survivors/0 by 2 ranks' 0
frozen "file:$work/meet here" 3 'is saved in frozen2 by 2 ranks' 2
frozen "tcp://127.0.0.1:$((21000 + $$ % 9000))" 2 'is saved in frozen12;' 1 2

# ---- a rank that freezes while it helps to save after another's death: once the state is saved, nobody waits for it ----
export CAIRN_TEST_SAVED_GRACE=2s
CAIRN_TEST_AT='write-1=stop' begin -- "${glue[@]}" --max-steps 100000 --output-dir helper --peer-timeout 3
wait_until 60 under_way helper || complain "the run does not begin: $(cat launch.out)"
kill -KILL "$(cat pids/rank2)"
ended 77
says "rank 1 on " " did not write its part: it has ended or is frozen" "is saved in helper;" \
    "1 of 3 ranks did not end in time" "error: rank 2 on localhost was killed by SIGKILL
" "1 fault: rank 2 on localhost (1). Effective share of time (ETTR): "

unset CAIRN_TEST_SAVED_GRACE

# ---- the rank that leads the save freezes with the folder's lock: the other one saves beside, and neither it nor the
# launcher waits ----
CAIRN_TEST_AT='planned-0=stop' begin -- "${glue[@]}" --max-steps 100000 --output-dir leader --peer-timeout 3
wait_until 60 under_way leader || complain "the run does not begin: $(cat launch.out)"
kill -KILL "$(cat pids/rank2)"
ended 77
says "is saved in leader/survivors/0;" "1 of 3 ranks did not end in time" "error: rank 2 on localhost was killed by SIGKILL
" "1 fault: rank 2 on localhost (1). Effective share of time (ETTR): "

# ---- two ranks killed in turn, in other ways: each is named, and the summary counts both ----
# shellcheck disable=SC2317 # by wait_until
started() { [ -e "pids/rank$1" ] && [ "$(wc -l <"pids/rank$1")" -ge "$2" ]; } # started RANK TIMES
touch slow0 # the test kills both before the run ends
CAIRN_TEST_SLOW=$work/slow begin --max-restarts 2 -- "${glue[@]}" --max-steps 60 --output-dir killed --snapshot-steps 1
times=0
for kill in "1 SEGV" "2 KILL"; do
    read -r lost name <<<"$kill"
    times=$((times + 1))
    wait_until 60 started "$lost" "$times" || complain "rank $lost does not start: $(cat launch.out)"
    seen=$(losses killed 2>/dev/null | wc -l)
    wait_until 60 advanced_by 3 killed || complain "the run does not go on: $(cat launch.out)"
    kill -s "$name" "$(tail -n 1 "pids/rank$lost")"
    wait_until 60 holds launch.out "rank $lost on localhost was killed by SIG$name; starting again" ||
        complain "rank $lost is not named: $(cat launch.out)"
done
rm slow0
ended 0
says "2 faults: rank 1 on localhost (1), rank 2 on localhost (1). Effective share of time (ETTR): "
[ "$(wc -l <killed/faults.jsonl)" -eq 2 ] || complain "faults.jsonl: $(cat killed/faults.jsonl)"
# sums FILE NAME: of the numbers of that name
sums() { sed -n "s/.*\"$2\": \([0-9.]*\).*/\1/p" "$1" | awk '{ s += $1 } END { printf "%.3f", s }'; }
grep -q '"faults": 2, "launch_s": ' killed/launches.jsonl || complain "launches.jsonl: $(cat killed/launches.jsonl)"
[ "$(wc -l <killed/starts.jsonl)" -eq 3 ] || complain "starts.jsonl: $(cat killed/starts.jsonl)"
parts='' whole=$(sums killed/launches.jsonl launch_s)
for part in trained_s notice_s ending_s pause_s start_s again_s; do parts+=" $(sums killed/launches.jsonl $part)"; done
awk -v whole="$whole" '{ exit !($1 > 0 && $4 > 0 && $5 > 0 && $1 + $2 + $3 + $4 + $5 + $6 <= whole) }' <<<"$parts" ||
    complain "parts of $whole s:$parts"
for part in start_s again_s; do
    [ "$(sums killed/launches.jsonl $part)" = "$(sums killed/starts.jsonl $part)" ] || complain "$part is not that of the starts"
done
"$CAIRN_BINARY" report killed --output-dir killed-report >report.out || complain "cairn report fails"
holds report.out "faults of killed: 2 faults: rank 1 on localhost (1), rank 2 on localhost (1). Effective share of time" ||
    complain "cairn report does not name the faults: $(cat report.out)"

# ---- a run that was stopped, and continued, had no faults; a rank that has CAIRN_JOB by hand has no launcher ----
begin -- "${glue[@]}" --max-steps 100000 --output-dir stopped
wait_until 60 under_way stopped || complain "the run does not begin: $(cat launch.out)"
kill -TERM "$launcher"
ended 75
begin -- "${glue[@]}" --max-steps "$(($(wc -l <stopped/metrics.jsonl) + 2))" --override --output-dir stopped
ended 0
"$CAIRN_BINARY" report stopped --output-dir stopped-report >report.out || complain "cairn report fails"
[ ! -e stopped/launches.jsonl ] && ! holds report.out "faults of stopped" ||
    complain "a run without faults: $(cat stopped/launches.jsonl report.out)"
[ "$(grep -c '"ended": true' stopped/starts.jsonl)" -eq 2 ] || complain "starts.jsonl: $(cat stopped/starts.jsonl)"
CAIRN_JOB=hand "$CAIRN_BINARY" "${glue[@]}" --max-steps 1 --output-dir hand >hand.out 2>&1 || complain "$(cat hand.out)"
[ ! -e hand/starts.jsonl ] || complain "a launcher that there is not: $(cat hand/starts.jsonl)"

# ---- a start without a step has no last step from which the launcher could have noticed the fault ----
CAIRN_TEST_AT='step1-1=kill' begin -- "${glue[@]}" --max-steps 3 --output-dir stepless
ended 77
[ "$(sums stepless/launches.jsonl notice_s) $(losses stepless | wc -l)" = "0.000 0" ] ||
    complain "a start without a step: $(cat stepless/launches.jsonl)"

# ---- the launcher is killed: its ranks save and end, and the next launcher sums it up, but not one that waits for the
# folder's lock while it runs ----
begin -- "${glue[@]}" --max-steps 100000 --output-dir orphan
wait_until 60 under_way orphan || complain "the run does not begin: $(cat launch.out)"
env -u CAIRN_TEST_PROGRAM "$CAIRN_BINARY" launch --ranks 1 -- "${glue[@]}" --max-steps 9 --output-dir orphan >second.out 2>&1 &
second=$!
: >orphan/faults.jsonl # a run that had faults
CAIRN_TEST_LOCK_WAIT=1s expect 1 env -u CAIRN_TEST_PROGRAM "$CAIRN_BINARY" launch --ranks 1 -- "${glue[@]}" --output-dir orphan
says "in use by"
[ ! -s orphan/faults.jsonl ] && [ ! -e orphan/launches.jsonl ] ||
    complain "a refused launch counts as one of the run: $(cat orphan/*s.jsonl)"
wait_until 60 holds second.out "in use by" || complain "a second launch does not wait: $(cat second.out)"
kill -TERM "$second"
wait "$second"
[ "$?" -eq 75 ] || complain "the second launch: $(cat second.out)"
kill -KILL "$launcher"
for pid in pids/*; do wait_until 60 gone "$(cat "$pid")" || complain "$pid goes on without its launcher"; done
wait "$launcher"
resumed=$(wc -l <orphan/metrics.jsonl)
begin -- "${glue[@]}" --max-steps "$((resumed + 2))" --override --output-dir orphan
ended 0
grep -q '"killed": true' orphan/launches.jsonl && [ "$(wc -l <orphan/launches.jsonl)" -eq 2 ] ||
    complain "launches.jsonl after a killed launcher: $(cat orphan/launches.jsonl)"
awk -v a="$(sums orphan/launches.jsonl trained_s)" -v b="$(tail -n 1 orphan/metrics.jsonl | grep -o '"trained_s.*')" \
    'BEGIN { sub(/.*: /, "", b); exit !(a > 0 && (a - b) ^ 2 < 1e-4) }' || complain "seconds of training: $(cat orphan/launches.jsonl)"

# ---- a rank that dies before the others can notice ----
DIES=yes begin --max-restarts 1 -- "${glue[@]}" --max-steps 2 --output-dir early
ended 0 30 # a stall is one of 35 s
says "rank 1 on localhost was killed by SIGKILL; starting again" "1 fault: rank 1 on localhost (1)"
for name in TERM INT; do
    DIES=yes begin --rendezvous "file:$work/run" --connect-timeout 60s -- "${glue[@]}" --max-steps 2 --output-dir "early$name"
    wait_until 60 test -s pids/rank1 || complain "rank 1 does not begin"
    wait_until 60 gone "$(cat pids/rank1)"
    kill -s "$name" "$launcher"
    ended 75 30
done

# ---- a rank that freezes before all have met: nothing can be saved, so it gets no time for that ----
export CAIRN_TEST_SAVED_GRACE=1s
FREEZES=1 begin --peer-timeout 1s --connect-timeout 2s -- "${glue[@]}" --max-steps 2 --output-dir unmet
ended 77 15
says "of 3 ranks these did not come: 1" "rank 1 on localhost was killed by SIGKILL, having not ended in time"
unset CAIRN_TEST_SAVED_GRACE

# ---- a rank that is stopped while it waits for the others, which do not notice: all stop ----
FREEZES=0 begin --rendezvous "file:$work/run" --connect-timeout 60s -- "${glue[@]}" --max-steps 2 --output-dir alone
# shellcheck disable=SC2317 # by wait_until
handles() { [ -s pids/rank0 ] && [ -s pids/rank1 ] && grep -q '^SigCgt:.*4a03$' "/proc/$(cat pids/rank1)/status"; }
wait_until 20 handles || complain "rank 1 does not handle signals"
kill -TERM "$(cat pids/rank1)"
wait_until 20 gone "$(cat pids/rank1)"
kill -CONT "$(cat pids/rank0)"
ended 75 20

# ---- a frozen agent ----
begin --peer-timeout 2s -- "${glue[@]}" --max-steps 100000 --output-dir agent
wait_until 60 under_way agent || complain "the run does not begin: $(cat launch.out)"
kill -STOP "$(ps -o ppid= -p "$(cat pids/rank0)" | tr -d ' ')"
ended 77
says "host localhost with ranks 0 to 2 was lost: it fell silent"

# ---- closed standard streams: no file receives the log ----
unset CAIRN_TEST_PROGRAM
closed() { # closed DIRECTORY COMMAND...: twice, because the second run reads the files of the first
    local dir=$1
    shift
    for _ in 1 2; do
        "$@" "${glue[@]}" --max-steps 3 --output-dir "$dir" --verbose --eval-every 1 --do-eval <&- >&- 2>&- ||
            complain "$1 ended with $? where its standard streams are closed"
    done
    [ "$(losses "$dir" | wc -l)" -eq 3 ] || complain "$dir/metrics.jsonl has $(losses "$dir" | wc -l) steps"
    grep -vh '^{.*}$' "$dir"/*.jsonl && complain "$dir has lines of the log in its files"
}
closed one "$CAIRN_BINARY"
closed many "$CAIRN_BINARY" launch --ranks 2 --
finish
