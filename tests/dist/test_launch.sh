#!/usr/bin/env bash
# `cairn launch` on one machine, and on hosts by a stand-in for ssh: the environment of ranks, their ends, restarts, and
# that no process is left. A script stands in for the program of a rank. The cases wait most of the time, so they run
# at the same time.
set -uo pipefail
# shellcheck source=tests/dist/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

# The program of a rank: $DO is a list of RANK[.START]:ACTION. It writes its environment into told/, and its process id
# into pids/ once it handles signals.
cat >rank.sh <<'END'
#!/usr/bin/env bash
shopt -s nullglob
earlier=("$WORK/told/rank$RANK."*) start=${#earlier[@]}
{
    for name in RANK WORLD_SIZE "${!LOCAL_@}" NODE_RANK "${!MASTER_@}" "${!CAIRN_@}" "${!OMPI@}" "${!SLURM@}"; do
        [ -z "${!name+set}" ] || echo "$name=${!name}"
    done
    echo "ARGUMENTS=$*"
    while read -r name value; do [ "$name" != Cpus_allowed_list: ] || echo "CORES=$value"; done </proc/$$/status
    echo "DIRECTORY=$PWD"
} >"$WORK/told/rank$RANK.$start"
source "$NAP"
note() { echo "$1" >>"$WORK/signals/rank$RANK"; }
trap 'note TERM; exit 75' TERM
trap 'note INT; exit 75' INT
trap 'note USR1; exit 75' USR1
trap 'note USR2; exit 75' USR2
mine=
for word in $DO; do case $word in $RANK.$start:* | $RANK:* | all:*) mine=${word#*:} && break ;; esac; done
[ "$mine" != deaf ] || trap 'note TERM' TERM INT USR1 USR2
all_begun() { # of this start
    local all=()
    until [ "${#all[@]}" -ge "$WORLD_SIZE" ]; do nap 0.02; all=("$WORK/pids/"*".$start"); done
}
echo "rank $RANK begins"
echo $$ >"$WORK/pids/rank$RANK.$start"
case $mine in
deaf | wait) while :; do nap 0.02; done ;;
kill) all_begun && kill -9 $$ ;;
segv) ulimit -c 0; kill -SEGV $$ ;;
error) all_begun && echo "error: rank $RANK cannot" >&2; exit 1 ;;
same) echo "error: nobody can" >&2; exit 2 ;;
child)
    sleep 1000 & echo $! >>"$WORK/pids/child$RANK"
    setsid sleep 1000 & echo $! >>"$WORK/pids/child$RANK"
    until read -r _ _ _ _ _ session _ <"/proc/$!/stat" && [ "$session" = $! ]; do nap 0.02; done
    exit 0 ;;
[0-9]*) all_begun && exit "$mine" ;;
esac
exit 0
END
chmod +x rank.sh
export CAIRN_TEST_PROGRAM=$work/rank.sh CAIRN_TEST_FAIL_GRACE=0.1s CAIRN_TEST_AGENT_SILENCE=1h
fresh() { rm -rf pids told signals && mkdir pids told signals; }
# shellcheck disable=SC2317 # it is, by expect
launch() { "$CAIRN_BINARY" launch "$@"; }
has() { # has FILE LINE...
    local file=$1 line
    shift
    for line in "$@"; do grep -qxF -- "$line" "$file" || complain "$file has no line '$line': $(tr '\n' ' ' <"$file")"; done
}
starts() { find told -name 'rank0.*' | wc -l; } # of rank 0
# begin DO RANKS FLAG...: a launch in the background, whose number is $launcher; all ranks handle signals when it returns.
begin() {
    fresh
    DO=$1 env --default-signal=HUP "$CAIRN_BINARY" launch --ranks "$2" "${@:3}" -- glue >launch.out 2>launch.err &
    launcher=$!
    wait_until "$hang_limit" begun "$2" || complain "the ranks did not begin: $(cat launch.err)"
}
# shellcheck disable=SC2317 # by wait_until
begun() {
    local file n=0
    for file in pids/*; do [ ! -s "$file" ] || n=$((n + 1)); done
    [ "$n" -ge "$1" ]
}
ended() { # ended CODE: the launch in the background
    local code=0
    wait "$launcher" || code=$?
    [ "$code" -eq "$1" ] || complain "launch ended with $code instead of $1: $(cat launch.err)"
    output=$(cat launch.out launch.err)
}
agent_of() { # sets `agent`
    local pid
    read -r pid <"pids/rank$1.0" && parent_of "$pid" && agent=$parent
}

# ---- the environment of ranks ----
environment() {
    local r
    fresh
    OMPI_COMM_WORLD_RANK=7 OMPI_COMM_WORLD_SIZE=9 RANK=3 CAIRN_REPORTS=77 DO='' expect 0 launch --ranks 2 --iface eth7 --peer-timeout 7s -- glue --task RTE --seed 5
    says "rank 0 begins"
    grep -q 'rank 1 begins' <<<"$output" && complain "the output of rank 1 is shown without an error"
    for r in 0 1; do
        has told/rank$r.0 RANK=$r WORLD_SIZE=2 LOCAL_RANK=$r LOCAL_WORLD_SIZE=2 NODE_RANK=0 MASTER_ADDR=127.0.0.1 \
            CAIRN_IFACE=eth7 CAIRN_PEER_TIMEOUT=7.000s "ARGUMENTS=glue --task RTE --seed 5" "DIRECTORY=$work"
        grep -qE '^CAIRN_RENDEZVOUS=served://127\.0\.0\.1:[0-9]+$' told/rank$r.0 || complain "no rendezvous"
        grep -qE '^CAIRN_JOB_TOKEN=[0-9a-f]{32}-1$' told/rank$r.0 || complain "no token"
        grep -qE 'OMPI|REPORTS=77' told/rank$r.0 && complain "another launcher's rank came through"
    done
    if [ "$(nproc)" -ge 2 ]; then
        [ "$(sed -n 's/^CORES=//p' told/rank0.0)" != "$(sed -n 's/^CORES=//p' told/rank1.0)" ] || complain "ranks share their cores"
        fresh
        DO='' expect 0 taskset -c "$(taskset -pc $$ | sed 's/.*: //; s/[,-].*//')" "$CAIRN_BINARY" launch --ranks 2 -- glue
        [ "$(grep -h CORES told/* | sort -u | wc -l)" -eq 1 ] || complain "ranks left the cores that are allowed"
    fi
    fresh
    DO='' expect 0 launch --verbose --ranks 2 --rendezvous tcp://localhost:7 -- glue
    has told/rank1.0 CAIRN_RENDEZVOUS=tcp://localhost:7
    says "[rank 1 on localhost] rank 1 begins"
    fresh
    DO='' expect 0 launch -- glue
    has told/rank0.0 WORLD_SIZE=1
}

# ---- exit codes ----
codes() {
    local code
    for code in 0 1 2 75 76 79 130; do
        fresh
        DO="all:$code" expect "$code" launch --ranks 1 --max-restarts 5 -- glue
        [ "$(starts)" -eq 1 ] || complain "started again after $code"
    done
    fresh
    SGE_ROOT=/x JOB_ID=7 DO=all:99 expect 99 launch --ranks 2 -- glue
}
failures() {
    fresh
    DO='2:error 0:wait 1:wait' expect 1 launch --ranks 3 --max-restarts 2 -- glue
    says "[rank 2 on localhost] error: rank 2 cannot" "rank 2 on localhost ended with 1 (failed)"
    has signals/rank0 TERM
    [ "$(starts)" -eq 1 ] || complain "started again after an error"
    fresh
    DO=all:same expect 2 launch --ranks 4 -- glue
    [ "$(grep -c 'nobody can' <<<"$output")" -le 2 ] || complain "the same error is shown more than once"
    fresh
    DO='0:error 1:77' expect 1 launch --ranks 2 --max-restarts 2 -- glue
}
kills() {
    fresh
    DO='1:kill 0:77 2:77' expect 77 launch --ranks 3 -- glue
    says "rank 1 on localhost was killed by SIGKILL"
    fresh
    DO='1:segv 0:77' expect 77 launch --ranks 2 -- glue
    says "rank 1 on localhost was killed by SIGSEGV"
}
# ---- starting again ----
again() {
    fresh
    DO='1.0:kill 0.0:77 2.0:77' expect 0 launch --ranks 3 --max-restarts 2 -- glue
    says "rank 1 on localhost was killed by SIGKILL; starting again on 1 host (1 of at most 2)"
    [ "$(find told -name 'rank*' | wc -l)" -eq 6 ] || complain "not every rank was started twice"
    [ "$(sed -n 's/^CAIRN_JOB_TOKEN=//p' told/* | sort -u | wc -l)" -eq 2 ] || complain "both starts have the same token"
    fresh
    DO='all:77' expect 77 launch --ranks 1 --max-restarts 2 -- glue
    [ "$(starts)" -eq 3 ] || complain "--max-restarts 2 made $(starts) starts"
}
max_time() { # counts for all starts together
    fresh
    DO='0.0:77' expect 0 launch --ranks 1 --max-restarts 1 -- glue --max-time 10h --seed 3
    has told/rank0.1 "ARGUMENTS=glue --seed 3"
    awk -F'[=s]' '/^CAIRN_MAX_TIME=/ { if ($2 + 0 > 0 && $2 + 0 < 36000) good = 1 } END { exit !good }' told/rank0.1 ||
        complain "the second start has the full --max-time: $(grep MAX_TIME told/rank0.1)"
}

# ---- signals ----
signal() { # signal NAME
    local r
    begin all:wait 3 --max-restarts 3
    kill -s "$1" "$launcher"
    ended 75
    for r in 0 1 2; do
        [ "$(cat signals/rank$r)" = "${2:-$1}" ] || complain "SIG$1: rank $r received $(cat signals/rank$r)"
    done
    all_gone pids/*
    [ "$(starts)" -eq 1 ] || complain "started again after a signal"
}
two_interrupts() {
    begin all:deaf 2
    kill -s INT "$launcher"
    wait_until "$hang_limit" test -s signals/rank1 || complain "no signal came"
    kill -s INT "$launcher"
    ended 130
    all_gone pids/*
}
no_end() {
    CAIRN_TEST_STOP_GRACE=0.1s begin all:deaf 2
    kill -s TERM "$launcher"
    ended 77
    says "2 of 2 ranks did not end in time" "having not ended in time"
    all_gone pids/*
}

# ---- no orphans ----
launcher_killed() {
    CAIRN_TEST_AGENT_GRACE=$work/grace begin '0:wait 1:deaf' 2
    kill -9 "$launcher"
    ended 137
    all_gone pids/rank0.0
    has signals/rank0 TERM # it could save
    : >grace
    all_gone pids/*
}
agent_killed() {
    begin all:deaf 2
    agent_of 0
    kill -9 "$agent"
    ended 77
    says "host localhost with ranks 0 to 1 was lost"
    all_gone pids/*
}
both_killed() {
    begin all:deaf 2
    agent_of 0
    kill -9 "$agent" "$launcher"
    wait "$launcher" 2>/dev/null
    all_gone pids/*
}
children() {
    fresh
    DO=all:child expect 0 launch --ranks 2 -- glue
    all_gone pids/*
    [ "$(cat pids/child* | wc -l)" -eq 4 ] || complain "the children were not seen"
}

# An agent whose messages nobody reads has lost its launcher, also while its orders stay open.
unread_agent() {
    local reader
    fresh
    mkfifo orders messages
    exec 8<>orders
    cat messages >agent.out &
    reader=$!
    printf 'arg cairn\nrank 0 0\ngo\n' >&8
    DO=all:wait "$CAIRN_BINARY" launch -- @agent <orders >messages 2>agent.err &
    wait_until "$hang_limit" begun 1 || complain "the agent did not start its rank: $(cat agent.err)"
    kill "$reader"
    all_gone pids/*
    exec 8<&-
    wait
}

# ---- a launcher whose output is not read ----
# It still sends its signs of life: agents on other hosts report a silent launcher as lost.
cat >talks.sh <<'END'
#!/usr/bin/env bash
trap 'echo TERM >>"$WORK/signals/rank$RANK"; exit 75' TERM
for ((i = 1; i <= 3000; i++)); do echo "rank $RANK says line $i, which is as long as lines of a log are, more or less" ; done
echo $$ >"$WORK/pids/rank$RANK"
source "$NAP"
while :; do nap 0.1; done
END
# Stands in for ssh, and writes down what the launcher sends.
cat >host.sh <<'END'
tee orders.sent | sh -c "$1"
END
chmod +x talks.sh
talk() { # talk FLAG...: a launch whose output goes to a pipe that nobody reads
    fresh
    printf 'elsewhere\n' >hosts
    mkfifo unread
    exec 9<>unread
    CAIRN_REPORTS=77 CAIRN_TEST_PROGRAM=${work%/*}/talks.sh CAIRN_SSH='env FAKE_HOST=%h bash ../host.sh' "$CAIRN_BINARY" launch --hosts hosts \
        --ranks 2 --verbose -- glue >unread 2>&1 &
    launcher=$!
    wait_until "$hang_limit" begun 2 || complain "ranks wait for the reader of a launcher that nobody reads"
}
# shellcheck disable=SC2317 # by wait_until
beats() { [ "$(grep -c beat orders.sent)" -ge "$1" ]; }
unread() {
    local before
    talk
    before=$(grep -c beat orders.sent)
    wait_until "$hang_limit" beats $((before + 2)) || complain "the launcher gives no sign of life, because its output is not read"
    alive "$(cat pids/rank0)" || complain "the launcher was reported as lost, because its output is not read"
    [ ! -e signals/rank0 ] || complain "ranks were asked to end, because the output of the launcher is not read"
    grep -q CAIRN_REPORTS orders.sent && complain "another launcher's pipe is sent to agents"
    cat <&9 >read.out &
    # shellcheck disable=SC2317 # by wait_until
    all_read() { [ "$(grep -c 'says line 3000' read.out)" -eq 2 ]; }
    wait_until "$hang_limit" all_read || complain "lines that waited for the reader are lost"
    [ "$(sed -n 's/^rank 0 says line \([0-9]*\),.*/\1/p' read.out)" = "$(seq 3000)" ] || complain "lines of rank 0 are lost, or in another order"
    kill "$launcher"
    ended 75
}
unread_end() { # without a reader, the launcher still ends on a signal
    talk
    kill "$launcher"
    wait_until "$hang_limit" gone "$launcher" || { complain "a launcher whose output is not read does not end" && kill -9 "$launcher"; }
    ended 75
    all_gone pids/*
}

# ---- use ----
use() {
    expect 2 launch --ranks 2
    says "nothing to start"
    expect 2 launch --ranks 2 pretrain
    says "unexpected argument 'pretrain'; write \`cairn launch [FLAG]... -- COMMAND [FLAG]...\`"
    expect 2 launch --ranks 2 -- glue --no-such-flag 3
    says "the command behind --" "--no-such-flag"
    expect 2 launch --probe -- glue
    expect 2 launch -- launch -- glue
    says "launch cannot start itself"
    expect 1 launch --hosts none -- glue
    says "none: cannot open"
}

for name in TERM INT USR1 USR2; do beside signal $name; done
beside signal HUP TERM # the terminal is gone
for case in environment codes failures kills again max_time two_interrupts no_end launcher_killed \
    agent_killed both_killed children unread_agent unread unread_end use; do
    if [[ $case == unread* ]] && [ -z "$(hostname -I)" ]; then
        echo "skipped in part: $case: this machine has only loopback" && continue
    fi
    beside $case
done
together
finish
