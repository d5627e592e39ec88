#!/usr/bin/env bash
# Started by hand, for hours: a job of four ranks on two hosts (network namespaces) under random faults some 15 s apart.
set -euo pipefail
case "${1:-}" in
'' | -h | --help)
    echo "bench/soak.sh HOURS [REPORT] [SEED]     (as root: it makes network namespaces)"
    echo "Random faults (a rank killed, frozen, crashed, ended with an error, slowed down; a host's cable cut), on average"
    echo "CAIRN_TEST_PAUSE seconds (15) apart, for HOURS (a part of one: 0.05). Each must be blamed on the right"
    echo "rank or host, and each run must have the weights of one without faults. Prints the counts, the worst recovery"
    echo "and the effective share of the time after each run. REPORT (soak.report) gets a line for each fault:"
    echo "time, run, kind, rank, host, milliseconds to the next new step, the launcher's line."
    echo "CAIRN_BINARY is the program, CAIRN_TEST_BUILD_DIR its folder, CAIRN_TEST_STEPS the steps of a run (5000)."
    exit 0
    ;;
esac
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
CAIRN_TEST_SECONDS=$(awk -v h="$1" 'BEGIN { printf "%d", 3600 * h }')
[ "$CAIRN_TEST_SECONDS" -gt 0 ] || { echo "soak.sh: HOURS is '$1'; expected a number above 0" >&2 && exit 2; }
CAIRN_TEST_REPORT=$(realpath -- "${2:-soak.report}")
export CAIRN_TEST_SECONDS CAIRN_TEST_REPORT CAIRN_TEST_REAL_TIME=1 CAIRN_TEST_FAULTS=1000000 CAIRN_TEST_PAUSE=${CAIRN_TEST_PAUSE:-15} \
    CAIRN_TEST_SEED=${3:-$RANDOM} CAIRN_TEST_STEPS=${CAIRN_TEST_STEPS:-5000} CAIRN_TEST_BUILD_DIR=${CAIRN_TEST_BUILD_DIR:-$root/build}
echo "seed $CAIRN_TEST_SEED, $CAIRN_TEST_SECONDS s"
exec bash "$root/tests/dist/test_blame.sh"
