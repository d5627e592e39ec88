#!/usr/bin/env bash
# Pretrains BERT on all hosts of a job.
set -euo pipefail
# shellcheck source=hpcai_scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

run_multinode run_pretraining.sh "--phase 1 --data-dir phase1/ --model-config large --vocab vocab.txt" "$@"
