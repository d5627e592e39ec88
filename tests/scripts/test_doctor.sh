#!/usr/bin/env bash
# `cairn doctor`: one screen about this machine, as text and as JSON; what is missing says why, and nothing stays behind.
set -euo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

rows=(cairn system processor memory cpu GPUs cuda gloo NCCL HDF5 limits /dev/shm schedulers variables disk)
mkdir place
expect 0 env -u CAIRN_BACKEND_DIR COLUMNS=80 "$CAIRN_BINARY" doctor --output-dir place
for row in "${rows[@]}"; do
    [ "$(grep -c "^$row " <<<"$output")" -eq 1 ] || complain "no line '$row', or several: $output"
done
says memlock "for this process" "MB/s written and durable"
while read -r line; do
    [ ${#line} -le 80 ] || complain "wider than 80 columns: $line"
done <<<"$output"
[ "$(wc -l <<<"$output")" -le 50 ] || complain "longer than a screen: $output"
[ -z "$(ls -A place)" ] || complain "it left files: $(ls -A place)"

# What is missing, and what is secret.
mkdir empty
expect 0 env CAIRN_BACKEND_DIR="$work/empty" CAIRN_JOB_TOKEN=hidden123 OMP_NUM_THREADS=3 PBS_JOBID=77.here "$CAIRN_BINARY" doctor \
    --output-dir nowhere
says "nowhere: there is no such folder" "OMP_NUM_THREADS=3" "PBS (PBS_JOBID"
grep -q hidden123 <<<"$output" && complain "the job's token is shown"

expect 0 "$CAIRN_BINARY" doctor --json --output-dir place
for row in "${rows[@]}"; do says "\"$row\": \""; done
if command -v python3 >/dev/null; then
    python3 -c 'import json, sys; json.load(sys.stdin)' <"$work/.stdout" || complain "--json is no JSON"
fi
expect 2 "$CAIRN_BINARY" doctor --batch-size 3

# The lines that a build shows, for ninja and for make.
show() { bash -c 'source "$1/common.sh"; show_build log' x "$scripts" 2>&1; }
[ "$(printf '[%d/8] x\n' 1 2 3 5 8 | show)" = $'0 % built\n25 % built\n50 % built\n100 % built' ] || complain "ninja's lines are not counted"
[ "$(printf '[ 10%%] x\n[ 60%%] y\nnote\n[100%%] z\n' | show)" = $'0 % built\n50 % built\n100 % built' ] || complain "make's lines are not counted"
grep -qx note log || complain "the build's log is not whole"
finish
