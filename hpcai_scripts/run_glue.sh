#!/usr/bin/env bash
# Fine-tunes a GLUE task and evaluates it.
set -euo pipefail
# shellcheck source=hpcai_scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

usage() {
    cat <<'END'
run_glue.sh [--task NAME] [--recompute POLICY] [--batch-size N] [any flag of `cairn glue`]...

Builds Cairn if need be, fine-tunes (--do-train) and evaluates (--do-eval; switch either off with --no-do-...).
  BERT_DIR     --model where that is not given: config.json, vocab.txt and weights
  GLUE_DIR     --data-dir where that is not given: the task's TSV files, or a folder of its name with them
  RESULTS_DIR  results go to $RESULTS_DIR/TASK unless --output-dir is given (default: results/ in the source folder).
               An unfinished run found there is continued. A finished one with other flags first moves to TASK.1,
               TASK.2, ...

    ./hpcai_scripts/run_glue.sh --task MNLI --recompute none --batch-size 24
    ./hpcai_scripts/run_glue.sh --task MNLI --recompute half-attention --batch-size 48

Exit codes: 0 done, 1 failed, 2 usage, 75 stopped with a durable checkpoint (run again to go on), 76 does not fit in
memory, 79 checkpoint corrupt. `build/cairn glue --help` lists all flags.
END
}

only_asks=false
for argument in "$@"; do
    case $argument in
    -h | --help) usage && exit 0 ;;
    --print[-_]config* | --dry[-_]run*) only_asks=true ;;
    esac
done

# Whether the finished run in folder $1 had the flags of $config, but for those that say where things go and how to look.
same_run() {
    local options='^  "[a-z0-9-]+": '
    local ignored='"(output-dir|resume|override|log-every|save-every|save-steps|keep|max-time|verbose|dry-run)"'
    diff -q <(grep -E "$options" <<<"$config" | grep -Ev "$ignored" | sed 's/,$//') \
        <(grep -E "$options" "$1/run.json" | grep -Ev "$ignored" | sed 's/,$//') >/dev/null
}

move_aside() {
    local n=1
    while [ -e "$1.$n" ]; do n=$((n + 1)); done
    mv -- "$1" "$1.$n"
    say "$1 held a finished run with other flags; it is now $1.$n"
}

find_cairn
export CAIRN_DO_TRAIN=${CAIRN_DO_TRAIN:-true} CAIRN_DO_EVAL=${CAIRN_DO_EVAL:-true}
fill_config '%s' "$@"
# run.json is written when a run ends.
if [ -n "$default_output" ] && [ -e "$default_output/run.json" ] && ! $only_asks && ! same_run "$default_output"; then
    move_aside "$default_output"
fi
exec "$cairn" glue "$@"
