#!/usr/bin/env bash
# `cairn launch` on one machine, and on hosts by a stand-in for ssh: the environment of ranks, their ends, restarts, and
# that no process is left. A script stands in for the program of a rank.
set -uo pipefail
# shellcheck source=tests/dist/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

# The program of a rank: $DO is a list of RANK[.START]:ACTION. It writes its process id into pids/, its environment into told/.
cat >rank.sh <<'END'
#!/usr/bin/env bash
mkdir -p "$WORK/pids" "$WORK/told" "$WORK/signals"
start=$(ls "$WORK/told" | grep -c "^rank$RANK\.")
env | grep -E '^(RANK|WORLD_SIZE|LOCAL_|NODE_RANK|MASTER_|CAIRN_|OMPI|SLURM|FAKE_HOST)' >"$WORK/told/rank$RANK.$start"
{ echo "ARGUMENTS=$*"; echo "CORES=$(taskset -pc $$ | sed 's/.*: //')"; echo "DIRECTORY=$PWD"; } >>"$WORK/told/rank$RANK.$start"
note() { echo "$1" >>"$WORK/signals/rank$RANK"; }
trap 'note TERM; exit 75' TERM
trap 'note INT; exit 75' INT
trap 'note USR1; exit 75' USR1
trap 'note USR2; exit 75' USR2
mine=
for word in $DO; do case $word in $RANK.$start:* | $RANK:* | all:*) mine=${word#*:} && break ;; esac; done
[ "$mine" != deaf ] || trap 'note TERM' TERM INT USR1 USR2
all_begun() { until [ "$(ls "$WORK/pids" | grep -c "\.$start\$")" -ge "$WORLD_SIZE" ]; do sleep 0.05; done; } # of this start
echo "rank $RANK begins"
echo $$ >"$WORK/pids/rank$RANK.$start"
case $mine in
deaf | wait) while :; do sleep 0.1; done ;;
slow) # saves for 3 s or more
    last=1000
    trap 'note TERM' TERM
    trap 'note USR2; last=$((SECONDS + 4))' USR2
    while [ $SECONDS -lt $last ]; do sleep 0.1; done
    exit 75 ;;
kill) all_begun && kill -9 $$ ;;
segv) ulimit -c 0; kill -SEGV $$ ;;
error) all_begun && echo "error: rank $RANK cannot" >&2; exit 1 ;;
same) echo "error: nobody can" >&2; exit 2 ;;
child) sleep 1000 & echo $! >>"$WORK/pids/child$RANK"; setsid sleep 1000 & sleep 0.3; pgrep -P $$ >>"$WORK/pids/child$RANK"; exit 0 ;;
[0-9]*) exit "$mine" ;;
esac
exit 0
END
chmod +x rank.sh
export WORK=$work CAIRN_TEST_PROGRAM=$work/rank.sh CAIRN_TEST_AGENT_GRACE=1s CAIRN_TEST_SAVE_GRACE=1s
fresh() { rm -rf pids told signals; }
# shellcheck disable=SC2317 # it is, by expect
launch() { "$CAIRN_BINARY" launch "$@"; }
has() { # has FILE LINE...
    local file=$1 line
    shift
    for line in "$@"; do grep -qxF -- "$line" "$file" || complain "$file has no line '$line': $(tr '\n' ' ' <"$file")"; done
}
# begin DO FLAGS...: a launch in the background, whose number is $launcher; $started ranks have begun when it returns.
begin() {
    local n=$2
    fresh
    DO=$1 env --default-signal=HUP "$CAIRN_BINARY" launch --ranks "$n" "${@:3}" -- glue >launch.out 2>launch.err &
    launcher=$!
    wait_until 60 begun "$n" || complain "the ranks did not begin: $(cat launch.err)"
}
# shellcheck disable=SC2317 # by wait_until
begun() { [ "$(cat pids/* 2>/dev/null | wc -l)" -ge "$1" ]; }
ended() { # ended CODE: the launch in the background
    local code=0
    wait "$launcher" || code=$?
    [ "$code" -eq "$1" ] || complain "launch ended with $code instead of $1: $(cat launch.err)"
    output=$(cat launch.out launch.err)
}

# ---- the environment of ranks ----
fresh
OMPI_COMM_WORLD_RANK=7 OMPI_COMM_WORLD_SIZE=9 RANK=3 DO='' expect 0 launch --ranks 2 --iface eth7 --peer-timeout 7s -- glue --task RTE --seed 5
says "rank 0 begins"
grep -q 'rank 1 begins' <<<"$output" && complain "the output of rank 1 is shown without an error"
for r in 0 1; do
    has told/rank$r.0 RANK=$r WORLD_SIZE=2 LOCAL_RANK=$r LOCAL_WORLD_SIZE=2 NODE_RANK=0 MASTER_ADDR=127.0.0.1 \
        CAIRN_IFACE=eth7 CAIRN_PEER_TIMEOUT=7.000s "ARGUMENTS=glue --task RTE --seed 5" "DIRECTORY=$work"
    grep -qE '^CAIRN_RENDEZVOUS=served://127\.0\.0\.1:[0-9]+$' told/rank$r.0 || complain "no rendezvous"
    grep -qE '^CAIRN_JOB_TOKEN=[0-9a-f]{32}-1$' told/rank$r.0 || complain "no token"
    grep -q OMPI told/rank$r.0 && complain "another launcher's rank came through"
done
cores=$(nproc)
if [ "$cores" -ge 2 ]; then
    [ "$(sed -n 's/^CORES=//p' told/rank0.0)" != "$(sed -n 's/^CORES=//p' told/rank1.0)" ] || complain "ranks share their cores"
    fresh
    DO='' expect 0 taskset -c "$(taskset -pc $$ | sed 's/.*: //; s/[,-].*//')" "$CAIRN_BINARY" launch --ranks 2 -- glue
    [ "$(grep -h CORES told/* | sort -u | wc -l)" -eq 1 ] || complain "ranks left the cores that are allowed"
fi
DO='' expect 0 launch --ranks 2 --rendezvous "file:$work" -- glue
has told/rank1.1 "CAIRN_RENDEZVOUS=file:$work"
DO='' expect 0 launch --verbose --ranks 2 -- glue
says "[rank 1 on localhost] rank 1 begins"
fresh
DO='' expect 0 launch -- glue
has told/rank0.0 WORLD_SIZE=1

# ---- exit codes ----
fresh
for code in 0 1 2 75 76 79 130; do
    DO="all:$code" expect "$code" launch --ranks 3 --max-restarts 5 -- glue
    [ "$(find told -name 'rank0.*' | wc -l)" -eq 1 ] || complain "started again after $code"
    fresh
done
SGE_ROOT=/x JOB_ID=7 DO=all:99 expect 99 launch --ranks 2 -- glue
fresh
DO='2:error 0:wait 1:wait' expect 1 launch --ranks 3 -- glue
says "[rank 2 on localhost] error: rank 2 cannot" "rank 2 on localhost ended with 1 (failed)"
has signals/rank0 TERM
DO=all:same expect 2 launch --ranks 4 -- glue
[ "$(grep -c 'nobody can' <<<"$output")" -le 2 ] || complain "the same error is shown more than once"
fresh
DO='1:kill 0:77 2:77' expect 77 launch --ranks 3 -- glue
says "rank 1 on localhost was killed by SIGKILL"
DO='1:segv 0:77' expect 77 launch --ranks 2 -- glue
says "rank 1 on localhost was killed by SIGSEGV"
fresh
DO='1:kill 0:deaf' expect 77 launch --ranks 2 --peer-timeout 1s -- glue # the survivor does not notice
says "1 of 2 ranks did not end in time" "rank 1 on localhost was killed by SIGKILL"
all_gone pids/*

# ---- starting again ----
fresh
DO='1.0:kill 0.0:77 2.0:77' expect 0 launch --ranks 3 --max-restarts 2 -- glue
says "rank 1 on localhost was killed by SIGKILL; starting again on 1 host (1 of at most 2)"
[ "$(find told -name 'rank*' | wc -l)" -eq 6 ] || complain "not every rank was started twice"
[ "$(sed -n 's/^CAIRN_JOB_TOKEN=//p' told/* | sort -u | wc -l)" -eq 2 ] || complain "both starts have the same token"
fresh
DO='all:77' expect 77 launch --ranks 2 --max-restarts 2 -- glue
[ "$(find told -name 'rank0.*' | wc -l)" -eq 3 ] || complain "--max-restarts 2 made $(find told -name 'rank0.*' | wc -l) starts"
DO='0:error 1:77' expect 1 launch --ranks 2 --max-restarts 2 -- glue

# --max-time counts for all starts together.
fresh
DO='0.0:77' expect 0 launch --ranks 1 --max-restarts 1 -- glue --max-time 50s --seed 3
has told/rank0.1 "ARGUMENTS=glue --seed 3"
awk -F'[=s]' '/^CAIRN_MAX_TIME=/ { if ($2 + 0 > 0 && $2 + 0 < 50) good = 1 } END { exit !good }' told/rank0.1 ||
    complain "the second start has the full --max-time: $(grep MAX_TIME told/rank0.1)"

# ---- signals ----
for name in TERM INT USR1 USR2; do
    begin all:wait 3
    kill -s "$name" "$launcher"
    ended 75
    for r in 0 1 2; do
        has signals/rank$r "$name"
        [ "$(wc -l <signals/rank$r)" -eq 1 ] || complain "$name came more than once"
    done
    all_gone pids/*
done
begin '0:wait 1:slow' 2 # rank 0 ends long before rank 1
kill -s USR2 "$launcher"
ended 75
[ "$(tr '\n' ' ' <signals/rank1)" = "USR2 " ] || complain "a rank that saves got $(tr '\n' ' ' <signals/rank1)"
begin all:wait 2 --max-restarts 3
kill -s HUP "$launcher" # the terminal is gone
ended 75
[ "$(find told -name 'rank0.*' | wc -l)" -eq 1 ] || complain "started again after a signal"
begin all:deaf 2
kill -s INT "$launcher"
wait_until 60 test -s signals/rank1 || complain "no signal came"
kill -s INT "$launcher"
ended 130
all_gone pids/*
export CAIRN_TEST_STOP_GRACE=1s
begin all:deaf 2
kill -s TERM "$launcher"
ended 77
says "2 of 2 ranks did not end in time" "having not ended in time"
all_gone pids/*
unset CAIRN_TEST_STOP_GRACE

# ---- no orphans ----
begin '0:wait 1:deaf' 2
kill -9 "$launcher"
ended 137
all_gone pids/*
has signals/rank0 TERM # it could save
begin all:deaf 2
agent=$(ps -o ppid= -p "$(cat pids/rank0.0)" | tr -d ' ')
kill -9 "$agent"
ended 77
says "host localhost with ranks 0 to 1 was lost"
all_gone pids/*
begin all:deaf 2
kill -9 "$(ps -o ppid= -p "$(cat pids/rank0.0)" | tr -d ' ')" "$launcher"
wait "$launcher" 2>/dev/null
all_gone pids/*
fresh
DO=all:child expect 0 launch --ranks 2 -- glue
all_gone pids/*
[ "$(cat pids/child* | wc -l)" -ge 4 ] || complain "the children were not seen"

# A recorded process of a dead agent is killed; with another start time it is another process.
sleep 1000 &
left=$!
sleep 1000 &
other=$!
started() { sed 's/.*) //' "/proc/$1/stat" | cut -d ' ' -f 20; }
printf 'boot %s\nagent 999999999 5\njob old\nrank 3 %d %s\nrank 4 %d 17\n' "$(cat /proc/sys/kernel/random/boot_id)" \
    "$left" "$(started "$left")" "$other" >run/cairn/launch-999999999-5
: >run/cairn/launch-1-1.tmp.1 # another agent writes it now
touch -d '2 minutes ago' run/cairn/launch-2-2.tmp.2
DO='' expect 0 launch --ranks 1 -- glue
says "killed process $left: rank 3 of job old"
gone "$left" || complain "the recorded process is still alive"
alive "$other" || complain "a process without a record was killed"
[ -e run/cairn/launch-999999999-5 ] && complain "the record was not removed"
[ -e run/cairn/launch-1-1.tmp.1 ] || complain "a record that is just written was removed"
[ -e run/cairn/launch-2-2.tmp.2 ] && complain "an old record without an agent was not removed"
rm -f run/cairn/launch-1-1.tmp.1
kill "$other"
wait 2>/dev/null
[ -z "$(ls run/cairn)" ] || complain "records were left: $(ls run/cairn)"

# ---- an agent whose messages nobody reads has lost its launcher, also while its orders stay open ----
fresh
mkfifo orders messages
exec 8<>orders
cat messages >agent.out &
reader=$!
printf 'arg cairn\nrank 0 0\ngo\n' >&8
DO=all:wait "$CAIRN_BINARY" launch -- @agent <orders >messages 2>agent.err &
wait_until 60 begun 1 || complain "the agent did not start its rank: $(cat agent.err)"
kill "$reader"
all_gone pids/*
exec 8<&-
wait

# ---- a launcher whose output is not read ----
# Beats continue: agents on other hosts report a launcher that is silent for 10 s as lost.
cat >talks.sh <<'END'
#!/usr/bin/env bash
mkdir -p "$WORK/pids" "$WORK/signals"
trap 'echo TERM >>"$WORK/signals/rank$RANK"; exit 75' TERM
for ((i = 1; i <= 3000; i++)); do echo "rank $RANK says line $i, which is as long as lines of a log are, more or less" ; done
echo $$ >"$WORK/pids/rank$RANK"
while :; do sleep 0.1; done
END
chmod +x talks.sh
printf 'elsewhere\n' >hosts
fresh
mkfifo unread
exec 9<>unread
CAIRN_TEST_PROGRAM=$work/talks.sh CAIRN_SSH='env FAKE_HOST=%h sh -c' "$CAIRN_BINARY" launch --hosts hosts --ranks 2 --verbose \
    --peer-timeout 1s -- glue >unread 2>&1 &
launcher=$!
wait_until 60 begun 2 || complain "ranks wait for the reader of a launcher that nobody reads"
sleep 13
alive "$(cat pids/rank0)" || complain "the launcher was reported as lost, because its output is not read"
[ ! -e signals/rank0 ] || complain "ranks were asked to end, because the output of the launcher is not read"
cat <&9 >read.out &
reader=$!
# shellcheck disable=SC2317 # by wait_until
all_read() { [ "$(grep -c 'says line 3000' read.out)" -eq 2 ]; }
wait_until 60 all_read || complain "lines that waited for the reader are lost"
[ "$(sed -n 's/^rank 0 says line \([0-9]*\),.*/\1/p' read.out)" = "$(seq 3000)" ] || complain "lines of rank 0 are lost, or in another order"
kill "$launcher"
ended 75
# Without a reader, the launcher still ends on a signal.
kill "$reader"
wait "$reader" 2>/dev/null
fresh
CAIRN_TEST_PROGRAM=$work/talks.sh CAIRN_SSH='env FAKE_HOST=%h sh -c' "$CAIRN_BINARY" launch --hosts hosts --ranks 2 --verbose \
    -- glue >unread 2>&1 &
launcher=$!
wait_until 60 begun 2 || complain "ranks wait for the reader of a launcher that nobody reads"
kill "$launcher"
wait_until 40 gone "$launcher" || { complain "a launcher whose output is not read does not end" && kill -9 "$launcher"; }
ended 75
all_gone pids/*
exec 9<&-

# ---- use ----
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
finish
