#!/usr/bin/env bash
# Fine-tunes a GLUE task and evaluates it, on all hosts of a job.
set -euo pipefail
# shellcheck source=hpcai_scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

run_multinode run_glue.sh "--task MNLI --recompute half-attention --batch-size 384" "$@"
