#!/usr/bin/env bash
# Open MPI's mpirun, and torchrun's variables by hand, start the ranks: each finds its rank in the environment. MPI
# is not linked.
set -uo pipefail
# shellcheck source=tests/dist/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
if [ ! -e "$(dirname -- "$CAIRN_BINARY")/cairn_gloo.so" ]; then echo "skipped: needs the gloo module" && exit 77; fi

make_tiny_bert bert
small_data 40
small=(--do-train --model-config bert/config.json --vocab bert/vocab.txt --data-dir data --batch-size 4 --max-seq-length 32
    --max-steps 6)
"$CAIRN_BINARY" launch --ranks 2 -- glue "${small[@]}" --output-dir launched >launch.out 2>&1 ||
    complain "launch: $(cat launch.out)"

port=$((20000 + $$ % 20000))
for r in 0 1; do
    RANK=$r WORLD_SIZE=2 LOCAL_RANK=$r LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
        "$CAIRN_BINARY" glue "${small[@]}" --output-dir by-hand >"hand.$r" 2>&1 &
    pids[r]=$!
done
for r in 0 1; do wait "${pids[r]}" || complain "by hand, rank $r: $(cat "hand.$r")"; done
[ "$(losses by-hand)" = "$(losses launched)" ] || complain "ranks started by hand have other losses"

if ! command -v mpirun >/dev/null; then
    echo "skipped: mpirun is not installed (Debian: openmpi-bin)"
    finish
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
run=(mpirun --oversubscribe --bind-to none -n)
expect 0 timeout "$hang_limit" "${run[@]}" 2 "$CAIRN_BINARY" glue "${small[@]}" --output-dir by-mpi
[ "$(losses by-mpi)" = "$(losses launched)" ] || complain "ranks under mpirun have other losses"
[ "$(grep -c 'trained 6 steps' <<<"$output")" -eq 1 ] || complain "the ranks did not train together: $output"
finish
