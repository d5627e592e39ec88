#!/usr/bin/env bash
# Evaluates a fine-tuned model on a GLUE task.
set -euo pipefail
# shellcheck source=hpcai_scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

usage() {
    cat <<'END'
eval.sh [--task NAME] --model DIR [any flag of `cairn glue`]...

Builds Cairn if needed and evaluates (--do-eval) a fine-tuned model on the task's dev sets.
  BERT_DIR     default of --model
  GLUE_DIR     default of --data-dir: the task's TSV files, or a folder with the task's name that contains them
  RESULTS_DIR  results go to $RESULTS_DIR/TASK-eval unless --output-dir is given (default: results/ in the source
               folder), so those of the training run stay

    ./hpcai_scripts/eval.sh --task MNLI --model "$RESULTS_DIR/MNLI"

Exit codes: 0 done, 1 failed, 2 usage, 76 does not fit in memory. `build/cairn glue --help-all` lists all flags.
END
}

for argument in "$@"; do
    case $argument in -h | --help) usage && exit 0 ;; esac
done

find_cairn
export CAIRN_DO_EVAL=${CAIRN_DO_EVAL:-true}
fill_config '%s-eval' "$@"
exec "$cairn" glue "$@"
