#!/usr/bin/env bash
# Two hosts at the ends of long cables that lose frames (tests/fakes/cable.c): a run has the bits of one on a
# good network, also after such a cable was cut, and the same command has resumed; under `test.sh deep` after killed and
# frozen ranks too. No time-out passes by itself: the test says who is silent.
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/dist/hosts.sh
. "$here/hosts.sh"
cable=${CAIRN_TEST_BUILD_DIR:-$here/../../build}/tests/fakes/cable
[ -x "$cable" ] || { echo "skipped: $cable is not built" && exit 77; }
[ -n "${CAIRN_TEST_HOSTS:-}" ] || within_hosts 2 "$here/${0##*/}" "$@"
# shellcheck source=tests/dist/snapshot_lib.sh
. "$here/snapshot_lib.sh"
skip_without_gloo
within_hosts 2 "$0" "$@"
exec 2>/dev/null # else the shell reports every killed process

patiently
make_case
steps=$(quick_or_deep 8 20)
run=("${task[@]}" --max-steps "$steps" --bucket-size 64KiB "${patient[@]}" --snapshot-steps 3)
for i in "${!run[@]}"; do if [ "${run[i]}" = "$memory" ]; then where=$i; fi; done
# shellcheck disable=SC2317 # by await
advanced() { reached "$@" || gone "${ranks[0]}"; }
# shellcheck disable=SC2317 # by await
halted() { stopped "$1" || gone "$1"; }

# start_hosts LOG FLAG...: a rank on each host, each with its own snapshots.
start_hosts() {
    local log=$1 r
    shift
    ranks=()
    for r in 0 1; do
        mkdir -p "$memory/h$r"
        run[where]=$memory/h$r
        RANK=$r WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 CAIRN_RENDEZVOUS="tcp://10.77.0.1:29400" \
            ip netns exec "h$((r + 1))" "$CAIRN_BINARY" "${run[@]}" "$@" >"$log.$r" 2>&1 </dev/null &
        ranks[r]=$!
    done
}

start_hosts log --output-dir whole
end_ranks
[ "${codes[*]}" = "0 0" ] || { complain "${codes[*]} beside a good network" && tail -n 3 log.*; }

# lay HOST: a cable of 2 ms that loses one frame in 100, from the host to the bridge.
cables=()
lay() {
    "$cable" "to$1" "c$1" 2 0.01 "$((RANDOM + 1))" >"cable$1" &
    cables[$1]=$!
    await holds "cable$1" "joined"
}
for i in 1 2; do
    ip link set "to$i" nomaster
    ip link add "c$i" type veth peer name "b$i"
    ip link set "b$i" master bridge0 up
    ip link set "c$i" up
    "$cable" "b$i" || complain "offloads of b$i"
    ip netns exec "h$i" "$cable" eth0 || complain "offloads of host $i"
    lay "$i"
done
ping=$(ip netns exec h1 bash -c 'time -p (for _ in {1..10}; do : </dev/tcp/10.77.0.254/9; done)' 2>&1 | awk '/^real/ { print $2 }')
awk -v s="${ping:-0}" 'BEGIN { exit !(s >= 0.04) }' || complain "the cable has no delay: ten refusals in ${ping:-?} s"

# One run with one fault after another.
for fault in $(quick_or_deep cut "kill cut freeze cut kill freeze cut kill"); do
    victim=$((RANDOM % 2))
    export CAIRN_TEST_SPARE_WAIT=1h
    [ "$fault$victim" != freeze0 ] || CAIRN_TEST_SPARE_WAIT=0s # it has the folder's lock
    start_hosts log --output-dir hurt
    await advanced hurt $(($(steps_in hurt) + 2))
    pause 200
    case $fault in
    kill) kill -9 "${ranks[victim]}" ;;
    freeze)
        kill -STOP "${ranks[victim]}"
        await halted "${ranks[victim]}"
        silence $((1 - victim)) "$victim"
        await gone "${ranks[1 - victim]}"
        kill -9 "${ranks[victim]}"
        ;;
    cut)
        kill -9 "${cables[victim + 1]}"
        silence 0 1
        silence 1 0
        ;;
    esac
    end_ranks
    heard
    if [ "$fault" = cut ]; then lay $((victim + 1)); fi
    for r in 0 1; do # the run's end may have come first
        case $fault$((r == victim)):${codes[r]} in
        *:0 | *:77 | kill1:137 | freeze1:137) ;;
        *) complain "$fault of rank $victim: rank $r ended with ${codes[r]}" && tail -n 3 log.* ;;
        esac
    done
done
start_hosts log --output-dir hurt
end_ranks
[ "${codes[*]}" = "0 0" ] || { complain "${codes[*]} in the end" && tail -n 3 log.*; }
same_run whole hurt "$steps"
finish
