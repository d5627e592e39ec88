#!/usr/bin/env bash
# MLPerf Training's BERT by its rules: repeated runs to the target, and the folder of a submission.
set -euo pipefail
# shellcheck source=hpcai_scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

usage() {
    cat <<'END'
run_mlperf.sh --system NAME|FILE --data-dir DIR --eval-dir DIR --model CHECKPOINT [--experiments N]
              [any flag of `cairn pretrain`]...

Builds Cairn if needed and trains BERT-Large from MLPerf's checkpoint to a masked-word accuracy of 0.720, N times with
different seeds (--preset bert-large-mlperf --log-format mlperf). Then it prints time and sequences to the target of each run, and
asks MLPerf's own checkers, if they are installed (pip install mlperf-logging).
  --system       tasks/pretrain/mlperf/config_NAME.sh, or a file like it: hosts, ranks, sequences per rank, settings
  --data-dir     training shards; tasks/pretrain/mlperf/prepare.sh makes them and those of --eval-dir
  --model        TF1 checkpoint, tf1_ckpt/model.ckpt-28252, with --model-config bert_config.json and --vocab vocab.txt
  --experiments  runs (default: NEXP, else 10, as the rules require)
  --seed S       seeds S, S+1, ...; else they are drawn at random, once, as the rules require
  --mlperf-org, --mlperf-platform, --mlperf-division, --mlperf-status: fields of the submission
  RESULTS_DIR    everything goes below $RESULTS_DIR/mlperf (default: results/ in the source folder):
                 ORG/results/PLATFORM/bert/result_0.txt, ..., ORG/systems/PLATFORM.json (fill in the rest by hand),
                 ORG/benchmarks/bert/implementations/, and the runs themselves in runs/PLATFORM/0, ...
  CLEAR_CACHES=1 empties this host's page cache before each run (needs root)
  MLPERF_RULESET the checkers' rules (default 5.0.0, the last with BERT)

The same command finishes what is missing: results that exist stay, an unfinished run resumes.

    ./hpcai_scripts/run_mlperf.sh --system H100_1x8x96 --data-dir data/train --eval-dir data/eval \
        --model tf1_ckpt/model.ckpt-28252 --model-config bert_config.json --vocab vocab.txt --mlperf-org Us
    RUN_SCRIPT=run_mlperf.sh sbatch --nodes 8 --ntasks-per-node 8 --gpus-per-node 8 hpcai_scripts/job.slurm \
        --system H100_8x8x72 ...

Exit codes: 0 all runs reached the target, 1 a run did not or a checker objects, 2 usage, 75 stopped by a signal or
a limit, with its work saved (run again to resume), 76 does not fit in memory, 77 a rank was lost, 78 --audit found
damaged memory (run again to resume).
END
}

# ---- flags ----

take_launch_flags "$@"
set -- "${other_flags[@]}"
system='' experiments=${NEXP:-10} seed='' only_asks=false given=()
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help) usage && exit 0 ;;
    --system=* | --experiments=* | --seed=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
    esac
    case $1 in --system | --experiments | --seed) [ $# -ge 2 ] || die 2 "$1 needs a value" ;; esac
    case $1 in
    --system) system=$2 && shift ;;
    --experiments) experiments=$2 && shift ;;
    --seed) seed=$2 && shift ;;
    --print[-_]config* | --dry[-_]run*) only_asks=true && given+=("$1") ;;
    *) given+=("$1") ;;
    esac
    shift
done
folder=$cairn_root/tasks/pretrain/mlperf
known="$(cd -- "$folder" && printf '%s\n' config_*.sh | sed 's/^config_//; s/\.sh$//' | paste -sd' '), or a file like those in $folder"
[ -n "$system" ] || die 2 "give --system: $known"
[[ $system == */* || -e $system ]] || system=$folder/config_$system.sh
if [ ! -f "$system" ] || [ ! -r "$system" ]; then die 2 "--system: $system is not a readable file; expected $known"; fi
for name in nodes ranks_per_node sequences_per_rank; do
    grep -qE "(^|[[:blank:];])$name=" "$system" || die 2 "--system: $system does not set $name; expected $known"
done
errors=$(bash -n "$system" 2>&1) || true # bash 5.1 ends with 0
[ -z "$errors" ] || die 2 "--system: $system is not bash: ${errors%%$'\n'*}; expected $known"
[[ $experiments =~ ^[1-9][0-9]*$ ]] || die 2 "--experiments $experiments: expected a number above 0"
[[ $seed =~ ^[0-9]*$ ]] || die 2 "--seed $seed: expected a number"
nodes='' ranks_per_node='' sequences_per_rank='' flags=()
# shellcheck source=/dev/null
source "$system"
for name in nodes ranks_per_node sequences_per_rank; do
    [[ ${!name} =~ ^[1-9][0-9]*$ ]] || die 2 "$system: $name='${!name}', expected a number above 0"
done
ranks=$((nodes * ranks_per_node))
if [ "$ranks" -gt 1 ]; then multinode=true; fi
case " ${launch_flags[*]}" in *" --ranks="*) ;; *) launch_flags+=("--ranks=$ranks") ;; esac

find_cairn
cairn_command=pretrain
flags=(--preset bert-large-mlperf --log-format mlperf --batch-size $((ranks * sequences_per_rank)) "${flags[@]}" "${given[@]}")
if $only_asks; then exec "$cairn" pretrain "${flags[@]}"; fi
resolve_config "${flags[@]}"
platform=$(resolved mlperf-platform) org=$(resolved mlperf-org)
case $platform$org in */*) die 2 "--mlperf-org and --mlperf-platform name folders: no / in them" ;; esac
root=${RESULTS_DIR:-$cairn_root/results}/mlperf
results=$root/$org/results/$platform/bert runs=$root/runs/$platform
mkdir -p "$results" "$runs" "$root/$org/systems" "$root/$org/benchmarks/bert/implementations/cairn"
cp -- "$system" "$root/$org/benchmarks/bert/implementations/cairn/"

# ---- the system's description ----

# quote TEXT: as JSON.
quote() {
    local text=${1//\\/\\\\}
    printf '"%s"' "${text//\"/\\\"}"
}

# Fields that can be found here are filled in; the others are empty.
describe_system() {
    local status field value
    declare -A known
    case $(resolved mlperf-status) in
    onprem) status="Available on-premise" ;;
    cloud) status="Available cloud" ;;
    preview) status=Preview ;;
    *) status="Research, Development, or Internal (RDI)" ;;
    esac
    cpu() { LC_ALL=C lscpu 2>/dev/null | sed -n "s/^ *$1: *//p" | head -n 1; }
    known=([submitter]=$org [division]=$(resolved mlperf-division) [status]=$status [system_name]=$platform
        [number_of_nodes]=$nodes [host_processors_per_node]=$(cpu 'Socket(s)')
        [host_processor_model_name]=$(cpu 'Model name') [host_processor_vcpu_count]=$(cpu 'CPU(s)')
        [host_processor_core_count]=$(cpu 'Core(s) per socket')
        [host_memory_capacity]="$(awk '/^MemTotal/ { printf "%.0f GB", $2 / 1e6 }' /proc/meminfo)"
        [operating_system]=$(. /etc/os-release 2>/dev/null && echo "${PRETTY_NAME:-}")
        [framework]=$("$cairn" --version) [accelerators_per_node]=0)
    if has_program nvidia-smi; then
        value=$(nvidia-smi --query-gpu=name,memory.total --format=csv,noheader 2>/dev/null) || value=''
        known[accelerators_per_node]=$ranks_per_node known[accelerator_model_name]=$(sed -n '1s/,.*//p' <<<"$value")
        known[accelerator_memory_capacity]=$(sed -n '1s/.*, *//p' <<<"$value")
    fi
    for field in submitter division status system_name number_of_nodes host_processors_per_node \
        host_processor_model_name host_processor_core_count host_processor_vcpu_count host_processor_frequency \
        host_processor_caches host_processor_interconnect host_memory_capacity host_storage_type host_storage_capacity \
        host_networking host_networking_topology host_memory_configuration accelerators_per_node \
        accelerator_model_name accelerator_host_interconnect accelerator_frequency accelerator_on-chip_memories \
        accelerator_memory_configuration accelerator_memory_capacity accelerator_interconnect \
        accelerator_interconnect_topology cooling hw_notes framework other_software_stack operating_system sw_notes; do
        printf '  "%s": %s\n' "$field" "$(quote "${known[$field]:-}")"
    done | sed '$!s/$/,/; 1s/^/{\n/; $s/$/\n}/'
}
description=$root/$org/systems/$platform.json
[ -e "$description" ] || describe_system >"$description"

# ---- the runs ----

finished() { grep -qs '"key": "run_stop"' "$1"; }

# The seed of each run; drawn ones are kept, so that a run that resumes has its own again.
seed_of() {
    if [ -n "$seed" ]; then echo $((seed + $1)) && return; fi
    [ -s "$runs/$1.seed" ] || od -An -N4 -tu4 /dev/urandom | tr -d ' ' >"$runs/$1.seed"
    cat "$runs/$1.seed"
}

clear_caches() {
    [ "${CLEAR_CACHES:-0}" = 1 ] || return 0
    [ "$nodes" -eq 1 ] || die 2 "CLEAR_CACHES=1 empties one host's cache: empty those of all $nodes hosts, and give --mlperf-cache-clear"
    sync
    echo 3 2>/dev/null >/proc/sys/vm/drop_caches || die 1 "CLEAR_CACHES=1: /proc/sys/vm/drop_caches cannot be written; this needs root"
    cleared=(--mlperf-cache-clear)
}

# A job's limit is that of all runs together.
limit=${CAIRN_MAX_TIME:-}
for ((i = 0; i < experiments; i++)); do
    if [[ $limit =~ ^([0-9]+)s$ ]]; then
        [ "$SECONDS" -lt "${BASH_REMATCH[1]}" ] || die 75 "CAIRN_MAX_TIME=$limit ended after $i of $experiments runs; the same command continues"
        export CAIRN_MAX_TIME=$((BASH_REMATCH[1] - SECONDS))s
    fi
    if finished "$results/result_$i.txt"; then continue; fi
    cleared=() code=0
    clear_caches
    train=(pretrain "${flags[@]}" "${cleared[@]}" --seed "$(seed_of "$i")" --output-dir "$runs/$i")
    if $multinode; then train=(launch "${launch_flags[@]}" -- "${train[@]}"); fi
    say "run $((i + 1)) of $experiments, seed $(seed_of "$i"), in $runs/$i"
    run_alone "$cairn" "${train[@]}" || code=$?
    [ "$code" -eq 0 ] || exit "$code"
    end_if_stopped "between two runs"
    cp -- "$runs/$i/mlperf.log" "$results/result_$i.txt"
done

# ---- what they gave ----

# value_of FILE KEY FIELD: of the last line with this key.
value_of() { sed -n "s/.*\"key\": \"$2\".*\"$3\": \"\{0,1\}\([^,\"}]*\).*/\1/p" "$1" | tail -n 1; }

summary() {
    local file began
    printf 'run\tseed\tstatus\tminutes\tsequences\taccuracy\n'
    for file in "$@"; do
        began=$(grep '"key": "run_start"' "$file" | sed -n 's/.*"time_ms": \([0-9]*\).*/\1/p')
        printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$(basename -- "$file" .txt)" "$(value_of "$file" seed value)" \
            "$(value_of "$file" run_stop status)" \
            "$(grep '"key": "run_stop"' "$file" | sed -n 's/.*"time_ms": \([0-9]*\).*/\1/p' | awk -v b="$began" '{ printf "%.3f", ($1 - b) / 60000 }')" \
            "$(value_of "$file" eval_accuracy epoch_num)" "$(value_of "$file" eval_accuracy value)"
    done
}
files=()
for ((i = 0; i < experiments; i++)); do files+=("$results/result_$i.txt"); done
summary "${files[@]}" | tee "$runs/summary.tsv"
awk -F'\t' 'NR > 1 && $3 == "success" { n++; t += $4; s += $5; if (n == 1 || $4 < least) least = $4; if ($4 > most) most = $4 }
    END { if (n >= 3) printf "mean time without the fastest and the slowest: %.3f minutes; mean to the target: %.0f sequences\n", (t - least - most) / (n - 2), s / n }' "$runs/summary.tsv"
failed=$(awk -F'\t' 'NR > 1 && $3 != "success"' "$runs/summary.tsv" | wc -l)
[ "$failed" -eq 0 ] || say "$failed of $experiments runs did not reach the target"

if ! python3 -c 'import mlperf_logging' 2>/dev/null; then
    say "MLPerf's checkers are not installed (pip install mlperf-logging): the logs were not checked"
else
    rules=${MLPERF_RULESET:-5.0.0}
    for file in "${files[@]}"; do
        if python3 -m mlperf_logging.compliance_checker --usage training --ruleset "$rules" --log_output "$runs/checker.log" "$file" \
            >"$runs/checker.txt" 2>&1 && grep -q SUCCESS "$runs/checker.txt"; then
            say "$(basename -- "$file"): MLPerf's checker $rules accepts it"
        else
            tail -n 20 "$runs/checker.txt" >&2
            say "$file: MLPerf's checker $rules objects" && failed=$((failed + 1))
        fi
    done
fi
[ "$failed" -eq 0 ]
