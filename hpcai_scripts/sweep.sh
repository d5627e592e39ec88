#!/usr/bin/env bash
# One run of a sweep, for the jobs of an array: RUN_SCRIPT=sweep.sh of job.pbs, job.slurm and job.sge.
set -euo pipefail
# shellcheck source=hpcai_scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

case ${1:-} in
-h | --help)
    cat <<'END'
sweep.sh --index N --vary FLAG=A,B [flag of `cairn sweep`]... -- COMMAND [FLAG]...

Makes the N-th run of a sweep. `cairn sweep --pbs` (--slurm, --sge) prints the command that submits all runs of a sweep
as one array of hpcai_scripts/job.*; each job of it calls this script, which makes the run in the folder RUN_FOLDER. The
same sweep without --index prints the table.
Exit codes: as `cairn glue`; 76 where the run does not fit in memory.
END
    exit 0
    ;;
esac
find_cairn
cd -- "${RUN_FOLDER:-.}"
exec "$cairn" sweep "$@"
