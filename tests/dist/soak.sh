#!/usr/bin/env bash
# Started by hand, for hours: one fault per minute against 2 and 3 ranks; the weights must be bit-equal at the end.
set -euo pipefail
case "${1:-}" in
'' | -h | --help)
    echo "tests/dist/soak.sh HOURS [SEED]: random faults, one a minute (CAIRN_TEST_PAUSE seconds apart, 60), for about HOURS hours."
    echo "CAIRN_BINARY is the program, CAIRN_TEST_BUILD_DIR its folder. Prints the count and ends with 0 if all ends were bit-equal."
    exit 0
    ;;
esac
[[ $1 =~ ^[1-9][0-9]*$ ]] || { echo "soak.sh: HOURS is '$1'; expected a whole number from 1" >&2 && exit 2; }
export CAIRN_TEST_PAUSE=${CAIRN_TEST_PAUSE:-60} CAIRN_TEST_SEED=${2:-$RANDOM}
export CAIRN_TEST_FAULTS=$(($1 * 3600 / (CAIRN_TEST_PAUSE + 1)))
export CAIRN_TEST_STEPS=${CAIRN_TEST_STEPS:-200000}
echo "seed $CAIRN_TEST_SEED, $CAIRN_TEST_FAULTS faults"
exec bash "$(dirname -- "${BASH_SOURCE[0]}")/test_snapshot_faults.sh"
