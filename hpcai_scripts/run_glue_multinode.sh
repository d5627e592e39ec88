#!/usr/bin/env bash
# Fine-tunes a GLUE task and evaluates it, on all hosts of a job.
set -euo pipefail
# shellcheck source=hpcai_scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

usage() {
    cat <<'END'
run_glue_multinode.sh [--ranks N] [--hosts FILE] [--max-restarts K] [any flag of run_glue.sh]...

run_glue.sh on every host of the job it is called in: of PBS (PBS_NODEFILE), Grid Engine (PE_HOSTFILE) or Slurm; or of
--hosts; else on this one. Call it once, on the first host: it starts the ranks on the others (by ssh, under Slurm by
srun), hands signals on, starts again after a fault, and leaves no process behind. The source folder and all paths must
be the same on all hosts (a shared file system).
  --hosts FILE    other hosts: a line each, NAME [slots=N]
  --ranks N       processes in all (default: one per GPU, or per host where there are none); --batch-size is that of all
  --max-restarts  how often to start again after a fault (default 3)

    qsub -I -l select=2:ngpus=4:ncpus=20:mpiprocs=4,place=scatter     # and then, on the first node:
    ./hpcai_scripts/run_glue_multinode.sh --task MNLI --recompute half-attention --batch-size 384

Exit codes: as run_glue.sh; 77: a host or a rank was lost, and no start was left; 99 for 75 under Grid Engine.
docs/cluster.md tells the rest.
END
}

for argument in "$@"; do
    case $argument in -h | --help) usage && exit 0 ;; esac
done
exec "$cairn_root/hpcai_scripts/run_glue.sh" --multinode "$@"
