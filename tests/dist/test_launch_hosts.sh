#!/usr/bin/env bash
# `cairn launch` on several hosts (network namespaces): placement by a list or a scheduler's variables; the probe;
# training; lost and missing hosts. The cases run at the same time.
set -uo pipefail
# shellcheck source=tests/dist/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=tests/dist/hosts.sh
source "$source_dir/tests/dist/hosts.sh"
within_hosts 5 "$source_dir/tests/dist/test_launch_hosts.sh"

# The ranks of the first $UNTIL starts wait. A rank of start 0 ends with $FIRST.
cat >rank.sh <<'END'
#!/usr/bin/env bash
shopt -s nullglob
mkdir -p "$WORK/told"
earlier=("$WORK/told/rank$RANK."*) start=${#earlier[@]}
trap 'exit 75' TERM
echo "$(hostname) $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE node$NODE_RANK" >"$WORK/told/rank$RANK.$start"
echo $$ >>"$WORK/told/pids"
source "$NAP"
while [ "$start" -lt "$UNTIL" ]; do nap 0.05; done
[ "$start" -gt 0 ] || exit "$FIRST"
exit 0
END
# While the file down-HOST exists, ssh to that host fails.
cat >/run/netns/.ssh2 <<'END'
#!/bin/sh
[ ! -e "$WORK/down-$1" ] || { echo "ssh: connect to host $1: No route to host" >&2; exit 255; }
exec /run/netns/.ssh "$@"
END
chmod +x rank.sh /run/netns/.ssh2
export CAIRN_TEST_PROGRAM=$work/rank.sh UNTIL=0 FIRST=0 CAIRN_TEST_NOTICE=1h CAIRN_TEST_RETRY=1h
printf 'h1\nh2\nh3\n' >all
printf '# two of them\nh1\nh2 # the second\n' >two
# shellcheck disable=SC2317 # by expect
launch() { "$CAIRN_BINARY" launch "$@"; }
# placed TEXT...: where the ranks of the last launch were, one word each: host:rank/ranks:local/locals.
placed() {
    local got
    got=$(cat told/rank*.0 2>/dev/null | awk '{ print $1 ":" $2 ":" $3 ":" $4 }' | sort -t: -k2n | tr '\n' ' ')
    [ "$got" = "$* " ] || complain "ranks are at '$got', not at '$*'"
    rm -rf told
}
# shellcheck disable=SC2317 # by wait_until
begun() { count_lines told/pids && [ "$lines" -ge "$1" ]; }
await_ranks() { wait_until "$hang_limit" begun "$1" || complain "$1 ranks did not begin: $(cat launch.out)"; }
# begin UNTIL FLAG...: in the background, on three hosts
begin() {
    UNTIL=$1 CAIRN_SSH=/run/netns/.ssh2 "$CAIRN_BINARY" launch --hosts ../all "${@:2}" -- glue >launch.out 2>&1 &
    launcher=$!
    await_ranks 3
}
# on HOST: this case's processes there
on() {
    local pid
    for pid in $(ip netns pids "$1"); do
        grep -qzx "WORK=$WORK" "/proc/$pid/environ" 2>/dev/null && echo "$pid"
    done
}
lose() { on "$1" | xargs -r kill -9 2>/dev/null; } # lose HOST: with all its processes
were() { # were START WHERE...: the ranks of this start
    local start=$1 got
    shift
    got=$(awk '{ print $1, $2 }' told/rank*."$start" | sort | tr '\n' ',')
    [ "$got" = "$(printf '%s,' "$@")" ] || complain "start $start: $got"
}
ends_well() {
    wait "$launcher" || complain "not started again: $(cat launch.out)"
    output=$(cat launch.out)
}

# ---- placement ----
# CAIRN_TEST_PROGRAM is passed on like all CAIRN_ variables; all namespaces see the same files.
listed() {
    expect 0 launch --hosts ../two -- glue
    placed h1:0/2:0/1:node0 h2:1/2:0/1:node1
    expect 0 launch --hosts ../two --ranks 4 -- glue
    placed h1:0/4:0/2:node0 h1:1/4:1/2:node0 h2:2/4:0/2:node1 h2:3/4:1/2:node1
    printf 'h1 slots=2\nh2 slots=1\nh0 slots=1\n' >three
    expect 0 launch --hosts three --ranks 3 -- glue
    placed h1:0/3:0/1:node0 h2:1/3:0/1:node1 h0:2/3:0/1:node2
    expect 2 launch --hosts three --ranks 5 -- glue
    says "--ranks 5, but three has 4 slots on 3 hosts"
}
by_pbs() {
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
}
by_others() {
    printf 'h2 4 all.q@h2 UNDEFINED\nh3 2 all.q@h3 UNDEFINED\n' >sge
    PE_HOSTFILE=$work/sge expect 0 launch --ranks 3 -- glue
    placed h2:0/3:0/2:node0 h2:1/3:1/2:node0 h3:2/3:0/1:node1
    SLURM_JOB_NODELIST='h[1-3]' SLURM_NTASKS=3 SLURM_TASKS_PER_NODE='1(x3)' SLURM_PROCID=0 CAIRN_SSH="$CAIRN_SSH %h" expect 0 launch --ranks 3 -- glue
    placed h1:0/3:0/1:node0 h2:1/3:0/1:node1 h3:2/3:0/1:node2
    SLURM_JOB_NODELIST='h[1-3]' SLURM_NTASKS=3 SLURM_TASKS_PER_NODE='1(x3)' expect 2 launch --ranks 4 -- glue
}

# ---- missing and lost hosts ----
missing() {
    printf 'h1\nh9\n' >four
    expect 77 launch --hosts four -- glue
    says "nothing could be started on h9 (ssh: Could not resolve hostname h9)"
    [ ! -e told ] || complain "a rank was started although a host is missing"
}
lost() {
    begin 1 --max-restarts 1
    lose h2
    ends_well
    says "host h2 with rank 1 was lost: its connection ended; starting again on 2 hosts (1 of at most 1)"
    [ "$(cat told/rank0.1 told/rank1.1 | tr '\n' ' ')" = "h1 0/2 0/1 node0 h3 1/2 0/1 node1 " ] || complain "after the fault: $(cat told/rank*.1)"
    all_gone told/pids
}
excluded() { # by --audit
    mkdir out && touch out/audit-report.txt && echo '{"host": "h2", "local_rank": 0, "excluded": true}' >out/audit.jsonl
    export FIRST=77
    expect 0 launch --hosts ../all --max-restarts 2 -- glue --output-dir out
    says "starting again on 2 hosts (1 of at most 2)"
    were 1 "h1 0/2" "h3 1/2"
    rm -rf told
    expect 77 launch --hosts ../all --ranks 3 --max-restarts 2 -- glue --output-dir out
    says "out/audit-report.txt names a host that computes wrongly" "not started again"
}

# ---- hosts that return ----
back() { # h2 is lost; it is back at the next fault
    begin 2 --max-restarts 3
    touch down-h2
    lose h2
    await_ranks 5
    rm down-h2
    lose h3
    ends_well
    were 0 "h1 0/3" "h2 1/3" "h3 2/3"
    were 1 "h1 0/2" "h3 1/2"
    says "starting again on 2 hosts (1 of at most 3)"
    were 2 "h1 0/2" "h2 1/2" # h3 was lost in the second start, h2 in the first
}
still_lost() { # the next start continues without it
    begin 2 --max-restarts 3
    touch down-h2
    lose h2
    await_ranks 5
    kill -9 "$(tail -n 1 told/pids)"
    ends_well
    says "continuing without h2 (ssh: connect to host h2: No route to host)"
    were 2 "h1 0/2" "h3 1/2"
}
all_lost() { # and return after the first new start
    local h
    begin 1 --max-restarts 1000
    for h in h1 h2 h3; do touch "down-$h"; done
    for h in h1 h2 h3; do lose $h; done
    wait_until "$hang_limit" holds launch.out "(2 of at most 1000)" || complain "it gave up: $(cat launch.out)"
    rm down-*
    ends_well
    compgen -G "told/rank0.1" >/dev/null || complain "no host came back: $(cat launch.out)"
}
orphans() {
    local h
    begin 9
    kill -9 "$launcher"
    wait "$launcher" 2>/dev/null
    all_gone told/pids
    # shellcheck disable=SC2317 # by wait_until
    empty() { [ -z "$(on "$1")" ]; }
    for h in h1 h2 h3; do wait_until "$hang_limit" empty $h || complain "$h still has processes: $(on $h)"; done
}

# ---- training ----
small=(glue --do-train --do-eval --model-config "$work/bert/config.json" --vocab "$work/bert/vocab.txt" --data-dir "$work/data"
    --batch-size 4 --max-seq-length 32 --schedule constant)
probe() {
    unset CAIRN_TEST_PROGRAM
    expect 0 launch --hosts ../all --probe
    says "rank 0 on h1 (10.77.0.1), rank 1 on h2 (10.77.0.2)" "3 ranks on 3 hosts, all sending at once:" "--network "
}
training() { # training HOSTS
    unset CAIRN_TEST_PROGRAM
    expect 0 launch --hosts "../$1" -- "${small[@]}" --max-steps 6 --output-dir out
    has_file out/model.safetensors
    [ "$(losses out | wc -l)" -eq 6 ] || complain "on $1: $(losses out | wc -l) steps"
}
# A host with one rank whose cable is cut while it trains: the host is lost, its rank is not frozen.
cut() {
    unset CAIRN_TEST_PROGRAM CAIRN_TEST_NOTICE
    patiently
    slowly
    printf 'h4\nh5\n' >two
    launch --hosts two -- "${small[@]}" --max-steps 100000 --output-dir cut >launch.out 2>&1 &
    launcher=$!
    wait_until "$hang_limit" reached cut 3 || complain "the run does not begin: $(cat launch.out)"
    ip link set to5 down
    silence 0 1
    silence 1 0
    wait_until "$hang_limit" gone "$launcher" || { complain "launch does not end" && kill -9 "$launcher"; }
    wait "$launcher"
    [ "$?" -eq 77 ] || complain "another end of a run with a cut cable: $(cat launch.out)"
    grep -q '"rank": -1, "host": "h5", "what": "host h5 with rank 1 was lost: the ranks of other hosts did not reach it"' cut/faults.jsonl ||
        complain "a cut cable: $(cat launch.out cut/faults.jsonl)"
}

for case in listed by_pbs by_others missing lost excluded back still_lost all_lost orphans; do beside $case; done
if [ -e "$(dirname -- "$CAIRN_BINARY")/cairn_gloo.so" ]; then
    make_tiny_bert bert
    small_data 40
    for case in probe "training two" "training all" cut; do
        # shellcheck disable=SC2086 # two words
        beside $case
    done
else
    echo "skipped: probe and training need the gloo module"
fi
together
finish
