#!/usr/bin/env bash
# `cairn launch` on several hosts (network namespaces): placement by a list or a scheduler's variables; the probe;
# training; lost and missing hosts.
set -uo pipefail
# shellcheck source=tests/dist/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=tests/dist/hosts.sh
source "$source_dir/tests/dist/hosts.sh"
within_hosts 3 "$source_dir/tests/dist/test_launch_hosts.sh"

cat >rank.sh <<'END'
#!/usr/bin/env bash
mkdir -p "$WORK/told"
start=$(ls "$WORK/told" | grep -c "^rank$RANK\.")
trap 'exit 75' TERM
echo "$(hostname) $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE node$NODE_RANK" >"$WORK/told/rank$RANK.$start"
echo $$ >>"$WORK/told/pids"
[ -z "${PAUSE:-}" ] || { [ "$start" != 0 ] && [ -z "${ALWAYS:-}" ]; } || while :; do sleep 0.1; done
exit 0
END
chmod +x rank.sh
export WORK=$work CAIRN_TEST_AGENT_GRACE=1s CAIRN_TEST_SAVE_GRACE=1s
# shellcheck disable=SC2317 # by expect
launch() { CAIRN_TEST_PROGRAM=$work/rank.sh "$CAIRN_BINARY" launch "$@"; }
# placed TEXT...: where the ranks of the last launch were, one word each: host:rank/ranks:local/locals.
placed() {
    local got
    got=$(cat told/rank*.0 2>/dev/null | awk '{ print $1 ":" $2 ":" $3 ":" $4 }' | sort -t: -k2n | tr '\n' ' ')
    [ "$got" = "$* " ] || complain "ranks are at '$got', not at '$*'"
    rm -rf told
}

# ---- placement ----
# CAIRN_TEST_PROGRAM is passed on like all CAIRN_ variables; all namespaces see the same files.
printf '# two of them\nh1\nh2 # the second\n' >two
expect 0 launch --hosts two -- glue
placed h1:0/2:0/1:node0 h2:1/2:0/1:node1
expect 0 launch --hosts two --ranks 4 -- glue
placed h1:0/4:0/2:node0 h1:1/4:1/2:node0 h2:2/4:0/2:node1 h2:3/4:1/2:node1
printf 'h1 slots=2\nh2 slots=1\nh0 slots=1\n' >three
expect 0 launch --hosts three --ranks 3 -- glue
placed h1:0/3:0/1:node0 h2:1/3:0/1:node1 h0:2/3:0/1:node2
expect 2 launch --hosts three --ranks 5 -- glue
says "--ranks 5, but three has 4 slots on 3 hosts"
printf 'h1\nh1\nh2\nh2\n' >pbs # as PBS writes it for select=2:mpiprocs=2
PBS_NODEFILE=$work/pbs PBS_JOBID=17.server expect 0 launch --ranks 4 -- glue
placed h1:0/4:0/2:node0 h1:1/4:1/2:node0 h2:2/4:0/2:node1 h2:3/4:1/2:node1
PBS_NODEFILE=$work/pbs expect 0 launch -- glue # without GPUs: one for each host
placed h1:0/2:0/1:node0 h2:1/2:0/1:node1
printf 'h0\n' >pbs # one line per host is not a slot: GPUs decide
PBS_NODEFILE=$work/pbs CUDA_VISIBLE_DEVICES=0,1 expect 0 launch -- glue
placed h0:0/2:0/2:node0 h0:1/2:1/2:node0
says "h0 gets 2 ranks for its GPUs"
printf 'h0\nh0\n' >pbs
PBS_NODEFILE=$work/pbs CUDA_VISIBLE_DEVICES=0,1,2 expect 0 launch -- glue
placed h0:0/2:0/2:node0 h0:1/2:1/2:node0
says "h0 has 3 GPUs, but PBS_NODEFILE" "gives it 2 ranks"
printf 'h2 4 all.q@h2 UNDEFINED\nh3 2 all.q@h3 UNDEFINED\n' >sge
PE_HOSTFILE=$work/sge expect 0 launch --ranks 3 -- glue
placed h2:0/3:0/2:node0 h2:1/3:1/2:node0 h3:2/3:0/1:node1
SLURM_JOB_NODELIST='h[1-3]' SLURM_NTASKS=3 SLURM_TASKS_PER_NODE='1(x3)' SLURM_PROCID=0 CAIRN_SSH="$CAIRN_SSH %h" expect 0 launch --ranks 3 -- glue
placed h1:0/3:0/1:node0 h2:1/3:0/1:node1 h3:2/3:0/1:node2
SLURM_JOB_NODELIST='h[1-3]' SLURM_NTASKS=3 SLURM_TASKS_PER_NODE='1(x3)' expect 2 launch --ranks 4 -- glue

# ---- missing and lost hosts ----
printf 'h1\nh9\n' >four
expect 77 launch --hosts four -- glue
says "nothing could be started on h9 (ssh: Could not resolve hostname h9)"
[ ! -e told ] || complain "a rank was started although a host is missing"
# shellcheck disable=SC2317 # by wait_until
begun() { [ -e told/pids ] && [ "$(wc -l <told/pids)" -ge "$1" ]; }
printf 'h1\nh2\nh3\n' >all
export CAIRN_TEST_PROGRAM=$work/rank.sh
PAUSE=1 "$CAIRN_BINARY" launch --hosts all --max-restarts 1 --peer-timeout 1s -- glue >launch.out 2>&1 &
launcher=$!
wait_until 60 begun 3 || complain "the ranks did not begin: $(cat launch.out)"
ip netns pids h2 | xargs kill -9 # the host is lost with all its processes
wait "$launcher" || complain "not started again after a lost host: $(cat launch.out)"
output=$(cat launch.out)
says "host h2 with rank 1 was lost: its connection ended; starting again on 2 hosts (1 of at most 1)"
[ "$(cat told/rank0.1 told/rank1.1 | tr '\n' ' ')" = "h1 0/2 0/1 node0 h3 1/2 0/1 node1 " ] || complain "after the fault: $(cat told/rank*.1)"
all_gone told/pids
rm -rf told
# ---- a host that --audit excluded ----
cat >excluded.sh <<'END'
#!/usr/bin/env bash
mkdir -p "$WORK/told"
start=$(ls "$WORK/told" | grep -c "^rank$RANK\.")
echo "$(hostname) $RANK/$WORLD_SIZE" >"$WORK/told/rank$RANK.$start"
[ "$start" -eq 0 ] && exit 77
exit 0
END
chmod +x excluded.sh
mkdir out && touch out/audit-report.txt && echo '{"host": "h2", "local_rank": 0, "excluded": true}' >out/audit.jsonl
export CAIRN_TEST_PROGRAM=$work/excluded.sh
expect 0 "$CAIRN_BINARY" launch --hosts all --max-restarts 2 -- glue --output-dir out
says "starting again on 2 hosts (1 of at most 2)"
[ "$(cat told/rank*.1 | tr '\n' ',')" = "h1 0/2,h3 1/2," ] || complain "the excluded host is used again: $(cat told/rank*.1)"
rm -rf told
expect 77 "$CAIRN_BINARY" launch --hosts all --ranks 3 --max-restarts 2 -- glue --output-dir out
says "out/audit-report.txt names a host that computes wrongly" "not started again"
rm -rf told out

# ---- hosts that return ----
# down FILE: while this file exists, ssh to that host fails. The ranks of the first $UNTIL starts wait.
cat >/run/netns/.ssh2 <<END
#!/bin/sh
[ ! -e "$work/down-\$1" ] || { echo "ssh: connect to host \$1: No route to host" >&2; exit 255; }
exec /run/netns/.ssh "\$@"
END
cat >waits.sh <<'END'
#!/usr/bin/env bash
mkdir -p "$WORK/told"
start=$(ls "$WORK/told" | grep -c "^rank$RANK\.")
echo "$(hostname) $RANK/$WORLD_SIZE" >"$WORK/told/rank$RANK.$start"
echo $$ >>"$WORK/told/pids"
[ "$start" -lt "$UNTIL" ] || exit 0
while :; do sleep 0.1; done
END
chmod +x /run/netns/.ssh2 waits.sh
export CAIRN_TEST_PROGRAM=$work/waits.sh
lose() { # lose HOST: kills all its processes
    touch "down-$1"
    ip netns pids "$1" | xargs kill -9 2>/dev/null
}
were() { # were START WHERE...: the ranks of this start
    local start=$1
    shift
    [ "$(cat told/rank*."$start" | sort | tr '\n' ',')" = "$(printf '%s,' "$@")" ] || complain "start $start: $(cat told/rank*."$start")"
}
# shellcheck disable=SC2317 # by wait_until
said() { grep -qF -- "$1" launch.out; }
begin_waiting() { # begin_waiting UNTIL FLAGS...
    rm -rf told down-*
    UNTIL=$1 CAIRN_SSH=/run/netns/.ssh2 "$CAIRN_BINARY" launch --hosts all --peer-timeout 1s "${@:2}" -- glue >launch.out 2>&1 &
    launcher=$!
    wait_until 60 begun 3 || complain "the ranks did not begin: $(cat launch.out)"
}
# h2 is lost; it is back at the next fault.
begin_waiting 2 --max-restarts 3
lose h2
wait_until 60 begun 5 || complain "not started again without h2: $(cat launch.out)"
rm down-h2
ip netns pids h3 | xargs kill -9 2>/dev/null
wait "$launcher" || complain "not started again: $(cat launch.out)"
were 0 "h1 0/3" "h2 1/3" "h3 2/3"
were 1 "h1 0/2" "h3 1/2"
said "starting again on 2 hosts (1 of at most 3)" || complain "$(cat launch.out)"
# h3 was lost in the second start, h2 in the first
[ "$(cat told/rank*.2 | tr '\n' ',')" = "h1 0/2,h2 1/2," ] || complain "h2 did not come back: $(cat launch.out told/rank*)"
# Still lost: the next start continues without it.
begin_waiting 2 --max-restarts 3
lose h2
wait_until 60 begun 5 || complain "not started again without h2: $(cat launch.out)"
kill -9 "$(tail -n 1 told/pids)"
wait "$launcher" || complain "not started again: $(cat launch.out)"
said "continuing without h2 (ssh: connect to host h2: No route to host)" || complain "$(cat launch.out)"
[ "$(cat told/rank*.2 | tr '\n' ',')" = "h1 0/2,h3 1/2," ] || complain "after h2: $(cat told/rank*.2)"
# --ranks needs it, so it is tried at once.
begin_waiting 1 --ranks 3 --max-restarts 1
ip netns pids h2 | xargs kill -9 2>/dev/null
wait "$launcher" || complain "not started again: $(cat launch.out)"
were 1 "h1 0/3" "h2 1/3" "h3 2/3"
# All hosts are lost, and return after the first new start.
begin_waiting 1 --max-restarts 6
for h in h1 h2 h3; do touch "down-$h"; done
for h in h1 h2 h3; do ip netns pids $h | xargs kill -9 2>/dev/null; done
wait_until 60 said "(2 of at most 6)" || complain "it gave up: $(cat launch.out)"
rm down-*
wait "$launcher" || complain "not started again: $(cat launch.out)"
[ "$(find told -name 'rank0.1')" ] || complain "no host came back: $(cat launch.out)"
rm -rf told
export CAIRN_TEST_PROGRAM=$work/rank.sh

PAUSE=1 ALWAYS=1 "$CAIRN_BINARY" launch --hosts all -- glue >launch.out 2>&1 &
wait_until 60 begun 3 || complain "the ranks did not begin: $(cat launch.out)"
kill -9 $!
wait $! 2>/dev/null
all_gone told/pids
# shellcheck disable=SC2317 # by wait_until
empty() { [ -z "$(ip netns pids "$1")" ]; }
for h in h1 h2 h3; do wait_until 60 empty $h || complain "$h still has processes: $(ip netns pids $h)"; done
rm -rf told
unset CAIRN_TEST_PROGRAM

# ---- training ----
if [ ! -e "$(dirname -- "$CAIRN_BINARY")/cairn_gloo.so" ]; then echo "skipped: probe and training need the gloo module" && finish; fi
expect 0 "$CAIRN_BINARY" launch --hosts all --connect-timeout 20s --probe
says "rank 0 on h1 (10.77.0.1), rank 1 on h2 (10.77.0.2)" "3 ranks on 3 hosts, all sending at once:" "--network "
make_tiny_bert bert
for hosts in two all; do
    expect 0 "$CAIRN_BINARY" launch --hosts $hosts -- glue --do-train --do-eval --model-config bert/config.json \
        --vocab bert/vocab.txt --data-dir "$sample" --max-steps 6 --output-dir "out-$hosts" --connect-timeout 20s --peer-timeout 20s
    has_file "out-$hosts/model.safetensors"
    [ "$(losses "out-$hosts" | wc -l)" -eq 6 ] || complain "on $hosts: $(losses "out-$hosts" | wc -l) steps"
done

# ---- a host with one rank whose cable is cut while it trains: the host is lost, its rank is not frozen ----
# shellcheck disable=SC2317 # by wait_until
under_way() { [ "$(losses "$1" 2>/dev/null | wc -l)" -ge 3 ]; }
unset CAIRN_TEST_SAVE_GRACE
"$CAIRN_BINARY" launch --hosts two -- glue --do-train --model-config bert/config.json --vocab bert/vocab.txt \
    --data-dir "$sample" --max-steps 100000 --output-dir cut --connect-timeout 20s --peer-timeout 3s >launch.out 2>&1 &
launcher=$!
wait_until 60 under_way cut || complain "the run does not begin: $(cat launch.out)"
ip link set to2 down
wait_until 60 gone "$launcher" || { complain "launch does not end" && kill -9 "$launcher"; }
wait "$launcher"
[ "$?" -eq 77 ] || complain "another end of a run with a cut cable: $(cat launch.out)"
grep -q '"rank": -1, "host": "h2", "what": "host h2 with rank 1 was lost: the ranks of other hosts did not reach it"' cut/faults.jsonl ||
    complain "a cut cable: $(cat launch.out cut/faults.jsonl)"
finish
