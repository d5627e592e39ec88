#!/usr/bin/env bash
# Hosts that lack something: a name, IPv4 on loopback, /proc, and enough of a limited resource. Ranks run there, or the
# limit is named at once.
set -uo pipefail
# shellcheck source=tests/dist/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
skip() { echo "skipped: $1" && exit 77; }
[ -e "$(dirname -- "$CAIRN_BINARY")/cairn_gloo.so" ] || skip "needs the gloo module"

make_tiny_bert bert
small_data 21
export CAIRN_TEST_AGENT_SILENCE=1h
train=(glue --do-train --data-dir data --model-config bert/config.json --vocab bert/vocab.txt --max-seq-length 16 --threads 1
    --batch-size 8 --max-steps 1 --snapshot-steps 0 --resume never)
alone=("$CAIRN_BINARY" "${train[@]}" --output-dir alone)
launch=("$CAIRN_BINARY" launch --ranks 2 -- "${train[@]}" --output-dir two)

# -- cores: ranks with cores of their own do not wait for each other, those that share one do
if [ "$(nproc)" -ge 2 ]; then
    expect 0 "${launch[@]}"
    grep -qF "threads will wait" <<<"$output" && complain "ranks with a core each are warned: $output"
fi
expect 0 taskset -c "$(taskset -pc $$ | sed 's/.*: //; s/[,-].*//')" "${launch[@]}"
says "warning: --threads 1 for each of 2 ranks on 1 core: threads will wait"

# -- what a namespace can take away; the shell in it is given the program's arguments
if [ "$(id -u)" -eq 0 ] && unshare --net --uts --mount true 2>/dev/null; then
    expect 0 unshare --uts bash -c 'echo >/proc/sys/kernel/hostname && exec "$@"' bash "${launch[@]}"
    says "2 ranks on this host" "the model is in two"
    if command -v ip >/dev/null; then
        # shellcheck disable=SC2016 # by the shell in the namespace
        expect 0 unshare --net bash -c 'ip link set lo up && ip addr del 127.0.0.1/8 dev lo && exec "$@"' bash "${launch[@]}"
        says "talk by lo (::1)" "the model is in two"
        # shellcheck disable=SC2016 # by the shell in the namespace
        expect 0 unshare --net bash -c 'ip link set lo up && ip addr del 127.0.0.1/8 dev lo || exit
            export WORLD_SIZE=2 LOCAL_WORLD_SIZE=2
            RANK=1 LOCAL_RANK=1 "$@" & RANK=0 LOCAL_RANK=0 "$@" && wait $!' bash \
            "$CAIRN_BINARY" "${train[@]}" --output-dir by-hand --verbose
        says "meets the others at tcp://[::1]" "the model is in by-hand"
    fi
    no_proc=(unshare --mount bash -c 'mount -t tmpfs none /proc && exec "$@"' bash)
    expect 0 "${no_proc[@]}" "${launch[@]}"
    says "warning: /proc is not mounted here" "the model is in two"
    expect 0 "${no_proc[@]}" "${alone[@]}" --backend ref
    expect 2 "${no_proc[@]}" "${alone[@]}" --backend abacus
    says "backend 'abacus'"
    grep -qF "(null)" <<<"$output" && complain "a message has (null): $output"
fi

# -- limits of a process
limited() { # limited CODE TEXT LIMIT... -- COMMAND...
    local code=$1 text=$2 limit=()
    shift 2
    while [ "$1" != -- ]; do limit+=("$1") && shift; done
    # shellcheck disable=SC2016 # by the shell below
    expect "$code" bash -c 'ulimit "$1" "$2" && shift 2 && exec "$@"' bash "${limit[@]}" "${@:2}"
    says "$text"
}
limited 76 "stacks are limited to 64 KiB (ulimit -s)" -s 64 -- "${launch[@]}"
limited 76 "stacks are limited to 64 KiB (ulimit -s)" -s 64 -- "${alone[@]}"
limited 1 "a process may have 12 files open (ulimit -n); with 2 ranks it needs 30" -n 12 -- "${launch[@]}"
limited 0 "the model is in two" -n 32 -- "${launch[@]}"
limited 0 "the model is in two" -Sn 12 -- "${launch[@]}" # the launcher raises what it may
if [ -e "$(dirname -- "$CAIRN_BINARY")/cairn_cpu.so" ] && ! ldd "$CAIRN_BINARY" | grep -q libasan; then
    limited 0 "the model is in two" -s 256 -- "${launch[@]}"
    for kib in 80000 110000 150000; do limited 76 "ulimit -v" -v $kib -- "${launch[@]}"; done
fi
finish
