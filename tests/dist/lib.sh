# Helpers for tests with many ranks, on top of tests/scripts/lib.sh.
# shellcheck shell=bash

# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../scripts/lib.sh"

# Unset the variables of a launcher or scheduler around the test.
while IFS= read -r variable; do unset "$variable"; done < <(
    compgen -v | grep -E '^(SLURM_|PBS_|PE_|PMI|OMPI_|SGE_|JOB_ID$|NSLOTS$|RANK$|WORLD_SIZE$|MASTER_|CAIRN_(JOB|RENDEZVOUS|SSH))'
)
# Killed ranks leave snapshots here; the test removes them at its end.
CAIRN_SNAPSHOT_DIR=$(mktemp -d /dev/shm/cairn-test-XXXXXX 2>/dev/null || mktemp -d "$work/memory-XXXXXX")
export CAIRN_SNAPSHOT_DIR
trap 'jobs -p | xargs -r kill -9 2>/dev/null; rm -rf -- "$work" "$CAIRN_SNAPSHOT_DIR"' EXIT
export CUDA_VISIBLE_DEVICES= # one rank per host
export CAIRN_PEER_TIMEOUT=1h CAIRN_CONNECT_TIMEOUT=1h # a rank or an agent that is only slow is not lost

# all_gone FILE...: the processes with the ids in these files have ended.
all_gone() {
    local file pid
    for file in "$@"; do
        while read -r pid; do
            wait_until "$hang_limit" gone "$pid" || complain "process $pid ($file) is still alive"
        done <"$file"
    done
}

# parent_of PID: sets `parent`.
parent_of() {
    local stat
    read -r stat <"/proc/$1/stat" && read -r _ parent _ <<<"${stat##*) }"
}

# small_data ROWS: data/, with the first rows of the sample.
small_data() {
    local file
    mkdir data
    head -n "$1" "$sample/train.tsv" >data/train.tsv
    for file in dev_matched dev_mismatched; do head -n 40 "$sample/$file.tsv" >"data/$file.tsv"; done
    cp "$sample"/test_*matched.tsv data
}
