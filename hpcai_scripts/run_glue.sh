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

HPCAI-2020's call is translated into flags, which are printed; flags may follow it:
    run_glue.sh [TASK [BATCH [RATE [PRECISION [XLA [GPUS [LENGTH [STRIDE [EPOCHS [WARMUP [CHECKPOINT]]]]]]]]]]]
    ./hpcai_scripts/run_glue.sh MNLI 24 5e-5 fp16 true 1 128 64 3.0 0.1

On many hosts: run_glue_multinode.sh, or --multinode here.

Exit codes: 0 done, 1 failed, 2 usage, 75 stopped by a signal or a limit, with its work saved (run again to
resume), 76 does not fit in memory, 77 a rank was lost, 78 --audit found damaged memory (run again to resume), 79
checkpoint corrupt. `build/cairn glue --help-all` lists all flags.
END
}

# ---- HPCAI-2020's positional call ----

# What its script calls each value, the default, a pattern of good ones, and words for it.
count='^[1-9][0-9]*$' number='^[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?$|^[0-9]+\.([eE][-+]?[0-9]+)?$'
positional=(
    task_name MNLI '^[A-Za-z][A-Za-z0-9_-]*$' "a task's name"
    batch_size 24 "$count" "a whole number"
    learning_rate 5e-5 "$number" "a number"
    precision fp16 '^(fp16|fp32)$' "fp16 or fp32"
    use_xla true '^(true|false)$' "true or false"
    num_gpu 1 "$count" "a whole number"
    seq_length 128 "$count" "a whole number"
    doc_stride 64 "$count" "a whole number"
    epochs 3.0 "$number" "a number"
    ws 0.1 '^(0?\.[0-9]+|[01]|[01]\.0*)$' "the share of warmup, from 0 to 1"
    init_checkpoint "" . "a path"
)

has_gpu() { has_program nvidia-smi && nvidia-smi -L 2>/dev/null | grep -q GPU; }

# Sets other_flags to the flags of these values, and of the flags behind them.
translate_values() {
    local n=0 i values=() order="" flags
    while [ $# -gt 0 ] && [[ $1 != -* ]]; do values+=("$1") && shift; done
    for ((i = 0; i < ${#positional[@]}; i += 4)); do order+=" ${positional[i]}"; done
    [ ${#values[@]} -le 11 ] || die 2 "expected at most 11 values, in the order$order; found ${#values[@]}"
    for ((i = 0; n < 11; i += 4, n++)); do
        [ $n -lt ${#values[@]} ] || values+=("${positional[i + 1]}")
        [[ $n -eq 10 || ${values[n]} =~ ${positional[i + 2]} ]] ||
            die 2 "value $((n + 1)), ${positional[i]}, is '${values[n]}'; expected ${positional[i + 3]}. The order is$order; or give flags (--help)"
    done
    local batch=${values[1]} rate=${values[2]} precision=${values[3]} ranks=${values[5]} note="" words=""
    flags=(--task "${values[0]}")
    if [ "$ranks" -gt 1 ]; then # its batch is a GPU's, and Horovod's size multiplies the rate
        multinode=true
        launch_flags+=("--ranks=$ranks") words=" --ranks $ranks"
        batch=$((batch * ranks)) rate=$(awk -v r="$rate" -v n="$ranks" 'BEGIN { print r * n }')
        note=", on $ranks ranks: batch size and rate are $ranks times those given"
    elif $multinode; then
        die 2 "value 6, num_gpu, is 1; expected the number of all ranks"
    fi
    if [ "$precision" = fp16 ] && ! has_gpu; then
        precision=auto note+=", without fp16, which needs a GPU"
    fi
    flags+=(--batch-size "$batch" --learning-rate "$rate" --precision "$precision" --max-seq-length "${values[6]}"
        --epochs "${values[8]}" --warmup-proportion "${values[9]}" --optimizer lamb --schedule poly:0.5-nvidia)
    if [ -n "${values[10]}" ]; then # vocabulary and sizes are those of BERT_DIR
        flags+=(--model "${values[10]}")
        for i in vocab=vocab.txt model-config=bert_config.json; do
            [ ! -f "${BERT_DIR:-}/${i#*=}" ] || flags+=("--${i%=*}" "$BERT_DIR/${i#*=}")
        done
    fi
    say "HPCAI-2020's values as flags$note; XLA and stride have no effect: run_glue.sh$words$(printf ' %q' "${flags[@]}" "$@")"
    other_flags=("${flags[@]}" "$@")
}

take_launch_flags "$@"
[[ ${other_flags[0]:--} == -* ]] || translate_values "${other_flags[@]}"
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
