#!/usr/bin/env bash
# The tables of PipeFisher (Osawa, Li, Hoefler, MLSys 2023) by simulation: schedules, bubbles, and K-FAC's work in them,
# from measured times of one layer. Seconds, no GPU.
set -euo pipefail
# shellcheck source=hpcai_scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../hpcai_scripts/common.sh"

case ${1:-} in
-h | --help)
    cat <<'END'
pipefisher.sh [FOLDER]

Prints a row for each case: step without and with preconditioning, utilization without and with K-FAC's work, and the
steps that a refresh takes. FOLDER gets the timelines as SVG.

The times of a layer are those of the cost tables in the authors' repository (micro-batches of 32 sequences of 128
tokens, fp32; forward, backward, curvature, inverses, preconditioning). Links, sums, embeddings, heads and the update
are not in them, so they take no time here.
END
    exit 0
    ;;
esac

find_cairn
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
[ -z "${1:-}" ] || mkdir -p -- "$1"

# case NAME MODEL STAGES SCHEDULE MICRO-BATCHES F B CURVATURE INVERSES PRECONDITIONING (ms of a layer)
case_of() {
    local name=$1 model=$2 stages=$3 schedule=$4 micros=$5 draw=()
    shift 5
    printf 'forward_ms,backward_ms,curvature_ms,inverses_ms,precondition_ms\n%s\n' "$(IFS=,; echo "$*")" >"$work/costs.csv"
    [ -z "$folder" ] || draw=(--svg "$folder/$name-$schedule.svg")
    "$cairn" plan --device v100 --precision fp32 --model-config "bert-$model" --max-seq-length 128 \
        --batch-size $((32 * micros)) --micro-batch-tokens 4096 --pipeline "$schedule" --stages "$stages" \
        --ranks "$stages" --costs "$work/costs.csv" --kfac-interval 10 --json "${draw[@]}" >"$work/plan.json"
    number() { sed -n "s/.*\"$1\": \([0-9.e-]*\).*/\1/p" "$work/plan.json" | head -n 1; }
    awk -v name="$name" -v schedule="$schedule" -v works="$(number works_s)" -v pre="$(number precondition_s)" \
        -v bubble="$(number bubble)" -v utilization="$(number utilization)" -v steps="$(number steps)" \
        -v exposed="$(number exposed_s)" 'BEGIN {
            printf "%-16s %-12s %10.1f %10.1f %8.1f%% %10.1f%% %10.1f%% %7d %9.1f\n", name, schedule, works * 1e3,
                (works + pre) * 1e3, 100 * pre / works, 100 * (1 - bubble), 100 * utilization, steps, exposed * 1e3 }'
}

folder=${1:-}
printf '%-16s %-12s %10s %10s %9s %11s %11s %7s %9s\n' case schedule 'step (ms)' 'with (ms)' added utilization filled \
    steps 'exposed'
for schedule in gpipe 1f1b chimera zb-h1; do
    case_of base-p100 base 4 "$schedule" 4 9.75 16.45 25.5 71.7 6.8
done
for schedule in gpipe 1f1b chimera zb-h1; do
    case_of large-p100 large 8 "$schedule" 8 16.1 27.0 43.5 126.7 14.7
done
case_of large-v100 large 8 chimera 8 10.4 16.3 27.4 80.8 8.9
case_of large-rtx3090 large 8 chimera 8 4.85 7.78 11.0 62.0 3.9
