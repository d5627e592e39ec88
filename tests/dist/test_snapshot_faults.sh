#!/usr/bin/env bash
# Ranks are killed, frozen and signalled at random moments of starting, recovering, training and saving. Every fault
# ends all ranks with a documented exit code and without a hang, the same command resumes and loses few steps, and the
# result is bit-equal to a run without faults. CAIRN_TEST_FAULTS: number of faults (4; 60 under `test.sh deep`);
# CAIRN_TEST_PAUSE: seconds between them (0).
# shellcheck source=tests/dist/faults_lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/faults_lib.sh"

wanted=${CAIRN_TEST_FAULTS:-$(quick_or_deep 4 60)} steps=${CAIRN_TEST_STEPS:-$(quick_or_deep 24 60)}
make_case
run=("${task[@]}" --max-steps "$steps" --bucket-size 16KiB "${patient[@]}")
for n in 2 3; do quiet "$n" "whole$n" "${run[@]}" --snapshot-steps 3; done

while [ "$faults" -lt "$wanted" ] && [ "$failures" -le 5 ]; do
    n=$((2 + (rounds + 1) % 2)) out=out$rounds
    faulty "$n" "$out" 3 "${run[@]}"
    same_run "whole$n" "$out" "$steps"
    rm -rf -- "$out"
done
summary
exit $((failures > 0))
