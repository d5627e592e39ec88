#!/usr/bin/env bash
# Pretrains BERT in two phases: short sequences first, then long ones from phase 1's model.
set -euo pipefail
# shellcheck source=hpcai_scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

usage() {
    cat <<'END'
run_pretraining.sh --phase 1|2 --data-dir DIR --model-config SIZE|FILE [any flag of `cairn pretrain`]...

Builds Cairn if needed and pretrains with the recipe of the phase (--preset bert-SIZE-phase1 or -phase2: LAMB, 7038
steps of 65536 sequences of 128 tokens, then 1563 of 32768 of 512). Flags override the recipe.
  --phase         1: from random weights, or --model. 2: from phase 1's model in RESULTS_DIR, or --model
  --data-dir      HDF5 shards with the phase's sequence length, made by `cairn shards`; or instead
  --input         a Wikipedia dump or text, from which it first makes shards in the output folder
  --model-config  tiny, mini, small, medium, base, large, or a config.json; phase 2 takes it from its model
  --vocab         the shards' vocab.txt, unless it is beside them or beside --model
  RESULTS_DIR     results go to $RESULTS_DIR/pretrain-phase1 and -phase2 unless --output-dir is given (default: results/
                  in the source folder). Resumes an unfinished run found there. Moves a finished run with other flags
                  to pretrain-phase1.1, ...

    ./hpcai_scripts/run_pretraining.sh --phase 1 --data-dir phase1/ --model-config large --vocab vocab.txt
    ./hpcai_scripts/run_pretraining.sh --phase 2 --data-dir phase2/

On many hosts: run_pretraining_multinode.sh, or --multinode here.

Exit codes: 0 done, 1 failed, 2 usage, 75 stopped by a signal or a limit, with its work saved (run again to
resume), 76 does not fit in memory, 77 a rank was lost, 78 --audit found damaged memory (run again to resume), 79
checkpoint corrupt. `build/cairn pretrain --help-all` lists all flags.
END
}

# Expands a size's short name, unless a file has that name.
full_size() {
    case $1 in
    tiny | mini | small | medium | base | large) if [ -e "$1" ]; then echo "$1"; else echo "bert-$1"; fi ;;
    *) echo "$1" ;;
    esac
}

take_launch_flags "$@"
set -- "${other_flags[@]}"
phase='' only_asks=false flags=()
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help) usage && exit 0 ;;
    --phase=*) phase=${1#*=} ;;
    --phase) [ $# -ge 2 ] || die 2 "--phase needs 1 or 2" && phase=$2 && shift ;;
    --model[-_]config=*) flags+=("--model-config=$(full_size "${1#*=}")") ;;
    --model[-_]config)
        [ $# -ge 2 ] || die 2 "--model-config needs a size or a file"
        flags+=("--model-config=$(full_size "$2")") && shift
        ;;
    --print[-_]config* | --dry[-_]run*) only_asks=true && flags+=("$1") ;;
    *) flags+=("$1") ;;
    esac
    shift
done
case $phase in
1 | 2) ;;
'') die 2 "give --phase 1 or --phase 2" ;;
*) die 2 "--phase $phase: expected 1 or 2" ;;
esac

find_cairn
cairn_command=pretrain
resolve_config "${flags[@]}"
if [ "$phase" = 2 ] && [ -z "$(resolved model)" ]; then
    first=${RESULTS_DIR:-$cairn_root/results}/pretrain-phase1
    [ -e "$first/model.safetensors" ] ||
        die 2 "phase 2 starts from phase 1's model, but $first has none; finish phase 1, or give --model"
    say "starting from phase 1's model in $first"
    export CAIRN_MODEL=$first
    resolve_config "${flags[@]}"
fi
# The recipes of all sizes are the same; the size from --model-config or the model overrides the preset's.
model_config=$(resolved model-config) size=bert-large
case $model_config in bert-*) [ -e "$model_config" ] || size=$model_config ;; esac
if [ -z "$model_config" ] && [ -z "$(resolved preset)" ]; then
    [ -n "$(resolved model)" ] || die 2 "give --model-config: tiny, mini, small, medium, base, large, or a config.json"
    export CAIRN_MODEL_CONFIG= # the one beside the model
fi
if [ -z "$(resolved preset)" ]; then export CAIRN_PRESET=$size-phase$phase; fi
resolve_config "${flags[@]}"
fill_output "pretrain-phase$phase" "${flags[@]}"
$only_asks || make_room
start_cairn pretrain "${flags[@]}"
