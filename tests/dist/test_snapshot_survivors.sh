#!/usr/bin/env bash
# A surviving rank saves: with a sharded optimizer from all slices in memory, on a device also a rank other than 0. The
# checkpoint is an ordinary one: without the snapshots the run resumes from disk, bit-equal.
# shellcheck source=tests/dist/snapshot_lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/snapshot_lib.sh"
skip_without_gloo
exec 2>/dev/null # the shell reports every killed process

make_case
patiently
run=("${task[@]}" "${patient[@]}" --bucket-size 16KiB --schedule constant --warmup 0)
checkpoints() { find "$1" -maxdepth 1 -name 'checkpoint-*' -printf '%f\n' | tr '\n' ' '; }

# lose OUT LOST FLAG...: runs three ranks and kills those in LOST before step $at; the others must end with 77.
at=12 steps=20
lose() {
    local out=$1 lost=$2 r
    shift 2
    start_stopped "$at" 3 log "${run[@]}" --max-steps "$steps" --output-dir "$out" "$@"
    # shellcheck disable=SC2086 # numbers
    kill_stopped $lost
    end_ranks
    for r in 0 1 2; do
        case " $lost " in
        *" $r "*) ;;
        *) [ "${codes[r]}" -eq 77 ] || { complain "rank $r ended with ${codes[r]} after the loss of $lost" && tail -n 20 log.*; } ;;
        esac
    done
}

start_ranks 3 log "${run[@]}" --max-steps 20 --output-dir whole --snapshot-steps 0
end_ranks
[ "${codes[*]}" = "0 0 0" ] || { complain "${codes[*]}" && cat log.0; }

# Each survivor writes a part of the state that all of them have.
lose shares 2 --snapshot-steps 0
grep -q 'is saved in .* by 2 ranks;' log.0 log.1 ||
    { complain "not written by both survivors" && tail -n 1 log.?; }
start_ranks 3 log "${run[@]}" --max-steps 20 --output-dir shares --snapshot-steps 0
end_ranks
[ "${codes[*]}" = "0 0 0" ] || { complain "${codes[*]} after a save by two ranks" && tail -n 3 log.*; }
grep -q '^resuming from .*checkpoint-' log.0 || { complain "it did not resume from disk" && cat log.0; }
same_run whole shares 20

# Also if rank 0, at which they met, is lost.
lose served 0 --snapshot-steps 0 --rendezvous "tcp://127.0.0.1:$port"
grep -q 'is saved in served by 2 ranks;' log.1 || { complain "not written by both survivors" && tail -n 1 log.?; }
[ "$(grep -c "; saving the run's state if possible" log.1)" -eq 1 ] || complain "the loss is not reported at once"

for lost in 0 "0 1"; do
    out=sharded${lost// /}
    lose "$out" "$lost" --shard optimizer --snapshot-steps 3
    made=$(steps_in "$out")
    step=$(sed -n 's/.*Step \([0-9]*\) of 20 is saved in .*/\1/p' log.? | head -n 1)
    { [ -n "$step" ] && [ "$step" -le "$made" ] && [ "$((made - step))" -le 6 ]; } ||
        { complain "step '$step' of $made was saved after the loss of $lost" && tail -n 2 log.*; }
    # They share the slices of their host's memory out among them.
    [ "$lost" = "0 1" ] || grep -q 'is saved in .* by 2 ranks;' log.? ||
        { complain "the survivors of $lost did not write together" && tail -n 1 log.?; }
    [ "$(checkpoints "$out")" = "checkpoint-$step " ] || complain "$out has $(checkpoints "$out")instead of step $step"
    rm -f "$memory"/cairn-*
    start_ranks 3 log "${run[@]}" --max-steps 20 --output-dir "$out" --shard optimizer --snapshot-steps 3
    end_ranks
    [ "${codes[*]}" = "0 0 0" ] || { complain "${codes[*]} after the loss of $lost" && tail -n 3 log.*; }
    grep -q "^resuming from .*checkpoint-$step: step $step of 20" log.0 || { complain "it did not resume from step $step" && cat log.0; }
    same_run whole "$out" 20
done

# The message names a missing slice. Without snapshots nothing can be saved.
start_stopped 12 3 log "${run[@]}" --max-steps 20 --output-dir lacking --shard optimizer --snapshot-steps 3
rm -f "$memory"/cairn-*-3-1-1.snapshot
kill_stopped 1
end_ranks
[ "${codes[*]}" = "77 137 77" ] || complain "${codes[*]} after a slice was removed"
grep -q 'Nothing is saved, .* of 3 slices lacks number 1' log.0 || { complain "the missing slice is not named" && tail -n 2 log.0; }
[ -z "$(checkpoints lacking)" ] || complain "lacking has $(checkpoints lacking)"
expect 79 "$CAIRN_BINARY" snapshot persist --snapshot-dir "$memory" --output-dir lacking
says 'no generation is whole' 'of 3 slices lacks number 1'
rm -f "$memory"/cairn-*
lose none 1 --shard optimizer --snapshot-steps 0
grep -q 'no snapshot was taken: the next run resumes from the newest checkpoint' log.0 || { complain "no reason" && tail -n 2 log.0; }

# `persist` does the same afterwards, from slices of several ranks.
lose persisted "0 1 2" --shard optimizer --snapshot-steps 3
expect 0 "$CAIRN_BINARY" snapshot persist --snapshot-dir "$memory" --output-dir persisted
step=$(sed 's/.*-//' .stdout)
mkdir kept && mv "$memory"/cairn-*-3-1-1.snapshot kept
rm -f "$memory"/cairn-*
start_ranks 3 log "${run[@]}" --max-steps 20 --output-dir persisted --shard optimizer --snapshot-steps 3
end_ranks
grep -q "^resuming from .*checkpoint-$step: step $step of 20" log.0 || { complain "it did not resume from step $step" && cat log.0; }
same_run whole persisted 20

# Ranks that are killed while they remove their slices at the end leave some; the same command removes the rest.
mv kept/* "$memory"
start_ranks 3 log "${run[@]}" --max-steps 20 --output-dir persisted --shard optimizer --snapshot-steps 3
end_ranks
[ "$(snapshots_left)" -eq 0 ] || complain "snapshots of the finished run remain: $(ls "$memory")"

# Only copies reach a device's memory, and only rank 0 has a buffer for them.
if [ -e "${CAIRN_TEST_BUILD_DIR:-$source_dir/build}/cairn_cuda_host.so" ]; then
    at=3 steps=4
    export CAIRN_TEST_CUDA_HOST_DEVICE=64 CAIRN_TEST_CUDA_HOST_GPUS=3
    for i in "${!run[@]}"; do if [ "${run[i]}" = ref ]; then run[i]=cuda_host; fi; done
    run+=(--comm gloo) # NCCL does not support it
    start_ranks 3 log "${run[@]}" --max-steps 4 --output-dir device --snapshot-steps 0
    end_ranks
    [ "${codes[*]}" = "0 0 0" ] || { complain "${codes[*]} on a device" && tail -n 3 log.*; }
    lose survived "0 1" --snapshot-steps 0
    step=$(sed -n 's/.*Step \([0-9]*\) of 4 is saved in .*/\1/p' log.2)
    [ -n "$step" ] || { complain "rank 2 saved nothing from its device" && tail -n 2 log.2; }
    start_ranks 3 log "${run[@]}" --max-steps 4 --output-dir survived --snapshot-steps 0
    end_ranks
    [ "${codes[*]}" = "0 0 0" ] || { complain "${codes[*]} on a device" && tail -n 3 log.*; }
    same_run device survived 4
fi
exit $((failures > 0))
