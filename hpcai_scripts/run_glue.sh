#!/usr/bin/env bash
# Fine-tunes a GLUE task and evaluates it.
set -euo pipefail
# shellcheck source=hpcai_scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

usage() {
    cat <<'END'
run_glue.sh [--task NAME] [--recompute POLICY] [--batch-size N] [any flag of `cairn glue`]...

Builds Cairn if needed, fine-tunes (--do-train) and evaluates (--do-eval; switch either off with --no-do-...).
  BERT_DIR     default of --model: config.json, vocab.txt and weights
  GLUE_DIR     default of --data-dir: the task's TSV files, or a folder with the task's name that contains them
  RESULTS_DIR  results go to $RESULTS_DIR/TASK unless --output-dir is given (default: results/ in the source folder).
               Resumes an unfinished run found there. Moves a finished run with other flags to TASK.1, TASK.2, ...

    ./hpcai_scripts/run_glue.sh --task MNLI --recompute none --batch-size 24
    ./hpcai_scripts/run_glue.sh --task MNLI --recompute half-attention --batch-size 48

On many hosts: run_glue_multinode.sh, or --multinode here.

Exit codes: 0 done, 1 failed, 2 usage, 75 stopped by a signal or a limit, with its work saved (run again to
resume), 76 does not fit in memory, 77 a rank was lost, 78 --audit found damaged memory (run again to resume), 79
checkpoint corrupt. `build/cairn glue --help` lists all flags.
END
}

take_launch_flags "$@"
set -- "${other_flags[@]}"
only_asks=false
for argument in "$@"; do
    case $argument in
    -h | --help) usage && exit 0 ;;
    --print[-_]config* | --dry[-_]run*) only_asks=true ;;
    esac
done

find_cairn
export CAIRN_DO_TRAIN=${CAIRN_DO_TRAIN:-true} CAIRN_DO_EVAL=${CAIRN_DO_EVAL:-true}
fill_config '%s' "$@"
$only_asks || make_room
start_cairn glue "$@"
