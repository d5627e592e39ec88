#!/usr/bin/env bash
# Snapshots hold K-FAC's inverses: after a kill of all ranks, or of one rank of a pipeline, a run resumes from memory
# with the weights, moments and inverses of one that was never stopped; data parallel and by a pipeline, in the middle of
# a set too.
# shellcheck source=tests/dist/snapshot_lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/snapshot_lib.sh"
skip_without_gloo
exec 2>/dev/null # the shell reports every killed process

make_case
patiently
run=("${task[@]}" "${patient[@]}" --schedule constant --warmup 0 --max-steps 24 --kfac-interval 5)

# equal DIR DIR: weights, moments, inverses, losses
equal() {
    same_run "$1" "$2" 24
    cmp -s "$1/checkpoint-24/kfac.safetensors" "$2/checkpoint-24/kfac.safetensors" || complain "$2 has other inverses than $1"
}

# whole N OUT FLAG...: a run that is never stopped
whole() {
    start_ranks "$1" log "${run[@]}" --output-dir "$2" --snapshot-steps 0 "${@:3}"
    end_ranks
    case "${codes[*]}" in *[1-9]*) complain "$2: ${codes[*]}" && cat log.0 ;; esac
}

# killed N OUT LIKE RANKS FLAG...: kills ranks, and runs the same command again
killed() {
    local n=$1 out=$2 like=$3
    start_stopped 18 "$n" log "${run[@]}" --output-dir "$out" --snapshot-steps 3 "${@:5}"
    # shellcheck disable=SC2086 # numbers
    kill_stopped $4
    end_ranks
    start_ranks "$n" again "${run[@]}" --output-dir "$out" --snapshot-steps 3 "${@:5}"
    end_ranks
    case "${codes[*]}" in *[1-9]*) complain "$out: ${codes[*]}" && cat again.0 ;; esac
    equal "$like" "$out"
    [ "$(snapshots_left)" -eq 0 ] || complain "$out leaves snapshots: $(ls "$memory")"
}

# data parallel, both sets
whole 3 whole3 --kfac-lag 4
killed 3 parallel whole3 "0 1 2" --kfac-lag 4
grep -q "resuming from the snapshot of step" again.0 || { complain "it does not resume from memory" && cat again.0; }
grep -q "has no state of K-FAC" again.0 && complain "the inverses are lost"

# a pipeline, one set; 15 is a refresh's step less one, so most steps are in the middle of a set
whole 2 whole2 --pipeline 1f1b
killed 2 piped whole2 "0 1" --pipeline 1f1b
grep -q "resuming from the snapshot of step" again.0 || { complain "the pipeline does not resume from memory" && cat again.0; }

# a lost rank: the other one saves what is in memory
killed 2 lost whole2 1 --pipeline 1f1b
grep -q "is saved in lost" log.0 || { complain "nothing is saved after a loss" && tail -n 2 log.0; }
grep -q "resuming from lost/checkpoint-" again.0 || { complain "the run does not resume from what was saved" && cat again.0; }

# replicas hold different parts; the run goes on without a pipeline from what `persist` writes
start_stopped 13 4 log "${run[@]}" --output-dir kept --snapshot-steps 2 --pipeline zb-h1 --stages 2 --kfac-lag 4
kill_stopped 0 1 2 3
end_ranks
expect 0 "$CAIRN_BINARY" snapshot persist --snapshot-dir "$memory" --output-dir kept
has_file kept/checkpoint-*/kfac.safetensors
whole 2 whole4 --kfac-lag 4
start_ranks 2 again "${run[@]}" --output-dir kept --kfac-lag 4
end_ranks
equal whole4 kept
exit $((failures > 0))
