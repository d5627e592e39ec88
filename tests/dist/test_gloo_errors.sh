#!/usr/bin/env bash
# The system refuses calls of Gloo's, in each run another one of rank 1: as its threads and destructors throw, too, no rank
# is killed by a signal, and none waits forever. `test.sh deep` tries more calls.
set -euo pipefail
# shellcheck source=tests/dist/ranks.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/ranks.sh"

preload=${CAIRN_TEST_BUILD_DIR:-$source_dir/build}/tests/fakes/gloo_calls.so
[ -e "$preload" ] || { echo "skipped: $preload is not built" && exit 77; }
if ldd "$CAIRN_BINARY" | grep -q libasan; then echo "skipped: the sanitizer replaces the same calls" && exit 77; fi
ulimit -c 0

make_tiny_bert tiny
small_data 40
glue=(glue --model-config "$work/tiny/config.json" --vocab "$work/tiny/vocab.txt" --data-dir "$work/data" --do-train --batch-size 8
    --max-steps 3 --snapshot-dir none --backend ref --output-dir out)

# refused NUMBER [OF [ON]]: two ranks; what Gloo of rank 1 is refused is said in gloo_calls.c. Where it can do without, both
# end with 0, else with 77.
refused() {
    local r code codes=()
    meet 2
    one 0 2 log "${glue[@]}"
    CAIRN_TEST_GLOO=$1 CAIRN_TEST_GLOO_OF=${2:-} CAIRN_TEST_GLOO_ON=${3:-} CAIRN_TEST_GLOO_LOG=$PWD/asked LD_PRELOAD=$preload \
        one 1 2 log "${glue[@]}"
    for r in 0 1; do
        code=0
        wait "${ranks[r]}" || code=$?
        codes+=("$code")
    done
    has_file asked
    case "${codes[*]}" in
    "0 0") ;;
    "77 77") grep -q 'error: ' log.1 || complain "$*: rank 1 says no error: $(tail -n 3 log.1)" ;;
    *) complain "$*: the ranks ended with ${codes[*]}: $(tail -n 3 log.0 log.1)" ;;
    esac
}

# Its first socket: rank 0, which connects, does not wait for its address.
alone() {
    refused 1 socket
    grep -q 'lost rank 1 .*closed its connection in order' log.0 || complain "rank 0 says: $(tail -n 2 log.0)"
}

beside alone
# What threads call: one that connects, one of the loop; what destructors call.
beside refused 1 getpeername
beside refused 1 epoll_wait on
beside refused 30 epoll_wait
beside refused 2 epoll_ctl on
together
if [ -n "${CAIRN_TEST_DEEP:-}" ]; then
    for ((n = 1; n <= 60; n += 4)); do
        for ((i = n; i < n + 4; i++)); do
            beside refused "$i"
            beside refused "$i" "" on
        done
        together
    done
fi
finish
