#!/usr/bin/env bash
# `cairn launch` with real ranks: a frozen rank, a rank that dies as it starts, a frozen agent, closed standard streams.
# What the launcher decides in these and other cases, and when, is in tests/sim and tests/unit/test_launch_state.c.
# The cases run at the same time. No time-out of the product passes in them, unless a case ends it.
set -uo pipefail
# shellcheck source=tests/dist/ranks.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/ranks.sh"

make_tiny_bert tiny
small_data 40
glue=(glue --model-config "$work/tiny/config.json" --vocab "$work/tiny/vocab.txt" --data-dir "$work/data" --do-train
    --backend ref --batch-size 4 --max-seq-length 32 --schedule constant --threads 1)
endless=("${glue[@]}" --max-steps 100000)

# The program of each rank writes its process id. Of the first start rank 1 dies at once where $DIES is set. The program
# stops itself at $AT1 in the first start, and so on.
cat >rank.sh <<'END2'
#!/usr/bin/env bash
echo $$ >>"$WORK/pids/rank$RANK"
mapfile -t starts <"$WORK/pids/rank$RANK"
[ "$DIES$RANK${#starts[@]}" != yes11 ] || kill -9 $$
at=AT${#starts[@]}
[ -z "${!at:-}" ] || export CAIRN_TEST_AT=${!at}
exec "$CAIRN_BINARY" "$@"
END2
chmod +x rank.sh
export CAIRN_TEST_PROGRAM=$work/rank.sh DIES=''
waits() { # waits COMMAND...: for all that it waits for
    patiently
    export CAIRN_TEST_AGENT_GRACE=1h
    "$@"
}
slowly # what trains until a fault leaves the processor to the others
begin() { # begin LAUNCH-FLAG... -- COMMAND...: in the background
    rm -rf pids && mkdir pids
    "$CAIRN_BINARY" launch --ranks 3 "$@" >launch.out 2>&1 &
    launcher=$!
}
ended() { # ended CODE: the launcher ends with this code
    local code=0
    wait_until "$hang_limit" gone "$launcher" || { complain "launch does not end" && kill -9 "$launcher"; }
    wait "$launcher" || code=$?
    [ "$code" -eq "$1" ] || complain "launch ended with $code instead of $1: $(tail -n 5 launch.out)"
    output=$(cat launch.out)
    all_gone pids/*
}
under_way() { # under_way DIR
    wait_until "$hang_limit" reached "$1" 3 || complain "the run does not begin: $(cat launch.out)"
}
# rank_of RANK [START]: sets `pid`, once the rank has one.
# shellcheck disable=SC2317 # by wait_until
has_started() { count_lines "pids/rank$1" && [ "$lines" -ge "$2" ]; }
rank_of() {
    local pids
    wait_until "$hang_limit" has_started "$1" "${2:-1}" || complain "rank $1 does not start: $(cat launch.out)"
    mapfile -t pids <"pids/rank$1"
    pid=${pids[${2:-1} - 1]}
}
await_stop() { # await_stop RANK [START]: sets `pid`
    rank_of "$@"
    wait_until "$hang_limit" stopped "$pid" || complain "rank $1 does not stop: $(cat launch.out)"
}
# number FILE NAME: of the last line
number() { tail -n 1 "$1" | sed "s/.*\"$2\": \([0-9.e-]*\).*/\1/"; }

# ---- a frozen rank with the folder's lock: the others save beside. It is named, and killed ----
frozen() {
    export CAIRN_TEST_SPARE_WAIT=0s
    AT1=step5-0=stop begin -- "${endless[@]}" --output-dir out
    await_stop 0
    silence 1 0
    silence 2 0
    ended 77
    says "is saved in out/survivors/0 by 2 ranks" "1 fault: rank 0 on localhost (1)" \
        "error: rank 0 on localhost was frozen (silent for 3600 s), and was killed"
    holds out/faults.jsonl '"start": 0, "rank": 0, "host": "localhost", "what": "rank 0 on localhost was frozen' &&
        [ "$(wc -l <out/faults.jsonl)" -eq 1 ] || complain "faults.jsonl: $(cat out/faults.jsonl)"
}

# ---- two ranks killed in turn, in other ways: each is named, and the summary counts both ----
in_turn() {
    AT1='step4-1=stop' AT2='step7-2=stop' begin --max-restarts 2 -- "${glue[@]}" --max-steps 10 --output-dir killed --snapshot-steps 1
    await_stop 1 1
    kill -ABRT "$pid" && kill -CONT "$pid" # a signal that sanitizers leave alone
    await_stop 2 2
    kill -KILL "$pid"
    ended 0
    says "rank 1 on localhost was killed by SIGABRT; starting again" "rank 2 on localhost was killed by SIGKILL; starting again" \
        "2 faults: rank 1 on localhost (1), rank 2 on localhost (1). Effective share of time (ETTR): "
    [ "$(wc -l <killed/faults.jsonl)" -eq 2 ] || complain "faults.jsonl: $(cat killed/faults.jsonl)"
    [ "$(wc -l <killed/launches.jsonl) $(number killed/launches.jsonl faults)" = "1 2" ] &&
        awk -v trained="$(number killed/launches.jsonl trained_s)" -v whole="$(number killed/launches.jsonl launch_s)" \
            'BEGIN { exit !(0 < trained && trained < whole) }' || complain "launches.jsonl: $(cat killed/launches.jsonl)"
    "$CAIRN_BINARY" report killed --output-dir killed-report >report.out || complain "cairn report fails"
    holds report.out "faults of killed: 2 faults: rank 1 on localhost (1), rank 2 on localhost (1). Effective share of time" ||
        complain "cairn report does not name the faults: $(cat report.out)"
    # The run wrote its page before the launcher summed up; both say the same in the end.
    holds killed/report.html "2 faults: rank 1 on localhost (1), rank 2 on localhost (1). Effective share of time" ||
        complain "report.html does not know the launcher's sum: $(grep fault killed/report.html)"
}

# ---- a run that was stopped, and continued, had no faults ----
no_fault() {
    begin -- "${endless[@]}" --output-dir stopped
    under_way stopped
    kill -TERM "$launcher"
    ended 75
    begin -- "${glue[@]}" --max-steps "$(($(wc -l <stopped/metrics.jsonl) + 2))" --override --output-dir stopped
    ended 0
    "$CAIRN_BINARY" report stopped --output-dir stopped-report >report.out || complain "cairn report fails"
    [ ! -e stopped/launches.jsonl ] && ! holds report.out "faults of stopped" ||
        complain "a run without faults: $(cat stopped/launches.jsonl report.out)"
}

# ---- the launcher is killed: its ranks save and end, and the next launcher counts its own seconds of training alone. One
# that waits for the folder's lock meanwhile counts nothing ----
orphan() {
    local second resumed before
    begin -- "${endless[@]}" --output-dir orphan
    under_way orphan
    env -u CAIRN_TEST_PROGRAM "$CAIRN_BINARY" launch --ranks 1 -- "${glue[@]}" --max-steps 9 --output-dir orphan >second.out 2>&1 &
    second=$!
    wait_until "$hang_limit" holds second.out "in use by" || complain "a second launch does not wait: $(cat second.out)"
    : >orphan/faults.jsonl # a run that had faults
    CAIRN_TEST_LOCK_WAIT=0s expect 1 env -u CAIRN_TEST_PROGRAM "$CAIRN_BINARY" launch --ranks 1 -- "${glue[@]}" --output-dir orphan
    says "in use by"
    [ ! -s orphan/faults.jsonl ] && [ ! -e orphan/launches.jsonl ] ||
        complain "a refused launch counts as one of the run: $(cat orphan/*s.jsonl)"
    kill -TERM "$second"
    wait "$second"
    [ "$?" -eq 75 ] || complain "the second launch: $(cat second.out)"
    kill -KILL "$launcher"
    all_gone pids/*
    wait "$launcher"
    resumed=$(wc -l <orphan/metrics.jsonl)
    before=$(number orphan/metrics.jsonl trained_s)
    begin -- "${glue[@]}" --max-steps "$((resumed + 2))" --override --output-dir orphan
    ended 0
    [ "$(wc -l <orphan/launches.jsonl)" -eq 1 ] &&
        awk -v before="$before" -v after="$(number orphan/metrics.jsonl trained_s)" \
            -v own="$(number orphan/launches.jsonl trained_s)" 'BEGIN { exit !(own > 0 && (after - before - own) ^ 2 < 1e-4) }' ||
        complain "launches.jsonl after a killed launcher: $(cat orphan/launches.jsonl)"
}

# ---- a rank that dies before the others can notice ----
early() {
    DIES=yes begin --max-restarts 1 -- "${glue[@]}" --max-steps 2 --output-dir out
    ended 0
    says "rank 1 on localhost was killed by SIGKILL; starting again" "1 fault: rank 1 on localhost (1)"
}

# ---- a frozen agent ----
agent() {
    export CAIRN_TEST_AGENT_SILENCE=$work/silence
    begin -- "${endless[@]}" --output-dir out
    under_way out
    rank_of 0
    parent_of "$pid"
    kill -STOP "$parent"
    wait_until "$hang_limit" stopped "$parent" || complain "the agent does not freeze"
    echo 1s >silence
    ended 77
    says "host localhost with ranks 0 to 2 was lost: it fell silent"
}

# ---- closed standard streams: no file receives the log ----
closed() { # closed COMMAND...: twice, because the second run reads the files of the first
    unset CAIRN_TEST_PROGRAM
    for _ in 1 2; do
        "$@" "${glue[@]}" --max-steps 3 --output-dir out --verbose --eval-every 1 --do-eval <&- >&- 2>&- ||
            complain "$1 ended with $? where its standard streams are closed"
    done
    [ "$(losses out | wc -l)" -eq 3 ] || complain "out/metrics.jsonl has $(losses out | wc -l) steps"
    grep -vh '^{.*}$' out/*.jsonl && complain "out has lines of the log in its files"
}

for case in frozen in_turn no_fault orphan early agent; do beside waits $case; done
beside closed "$CAIRN_BINARY"
beside closed "$CAIRN_BINARY" launch --ranks 2 --
together
finish
