#!/usr/bin/env bash
# Seconds of a step against memory: --recompute auto at eight budgets and Cairn's own policies, beside PyTorch's ways to
# recompute, on this CPU, in one run, interleaved.
set -euo pipefail
# shellcheck source=hpcai_scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../hpcai_scripts/common.sh"

usage() {
    cat <<'END'
plans.sh [--out FILE.tsv] [--only NAME,...] [--shape NAME:CONFIG:BATCH:LENGTH] [--rounds N] [--minutes N] [--precision bf16|fp32]
plans.sh --draw FILE.tsv      the table on the standard output, the picture beside the file as FILE.svg
plans.sh --published          figures that others published beside what `cairn plan` says of the same case

  --out FILE.tsv   a line per measured step, a new file (default plans.tsv)
  --only NAME,...  of base-128, base-512, large-128, large-512 (default: all): 8 × 128, 2 × 512, 4 × 128, 1 × 512 tokens
  --shape ...      another shape in their place; CONFIG is a config.json
  --rounds N       of all cases, each begun with another one (default 3); 0: what PyTorch compiles is compiled, no more
  --minutes N      a shape begins no round after its part of these (default 0: no limit)
  --precision P    default bf16
  --build DIR      the build folder (default build), given before --published

PEER_PYTHON is a Python with torch and transformers; without one Cairn is measured alone. TORCHINDUCTOR_CACHE_DIR keeps
what is compiled for a later run: minutes of each shape. A step follows one that is not timed. Cairn's steps, and PyTorch's
that are not compiled, run in a process of their own; compiled ones of a shape share one, which keeps what it compiled.

HiRemate is not measured: rkgb 2.0.0 on PyPI, which rockmate 2.0.0 needs, lacks its own modules (`rkgb.core`), and the
authors' repository (December 2024) asks for a CUDA device while it solves.
END
}

folder=$cairn_root/build
out=plans.tsv only='' shapes=() rounds=3 minutes=0 precision=bf16
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help) usage && exit 0 ;;
    --published) export CAIRN_BACKEND_DIR=$folder && exec python3 "$cairn_root/bench/plans_report.py" --published "$folder/cairn" ;;
    esac
    [ $# -gt 1 ] || die 2 "$1: expected a value, or a flag of --help"
    case $1 in
    --draw) exec python3 "$cairn_root/bench/plans_report.py" "$2" --svg "${2%.tsv}.svg" ;;
    --build) folder=$(cd "$2" && pwd) ;;
    --out) out=$2 ;;
    --only) only=$2 ;;
    --shape) shapes+=("$2") ;;
    --rounds) rounds=$2 ;;
    --minutes) minutes=$2 ;;
    --precision) precision=$2 ;;
    *) die 2 "unknown flag '$1'; see --help" ;;
    esac
    shift 2
done
[ ! -e "$out" ] || die 2 "--out $out: expected a new file, this one exists"
[[ $precision =~ ^(bf16|fp32)$ ]] || die 2 "--precision: expected bf16 or fp32, found '$precision'"
[[ $rounds$minutes =~ ^[0-9]+$ ]] || die 2 "--rounds and --minutes: expected numbers, found '$rounds' and '$minutes'"
if [ ${#shapes[@]} -eq 0 ]; then
    for shape in base-128:8:128 base-512:2:512 large-128:4:128 large-512:1:512; do
        name=${shape%%:*}
        [ -z "$only" ] || [[ ,$only, == *,$name,* ]] || continue
        shapes+=("$name:$cairn_root/bench/configs/bert-${name%-*}.json:${shape#*:}")
    done
fi
[ ${#shapes[@]} -gt 0 ] || die 2 "--only: expected base-128, base-512, large-128 or large-512, found '$only'"

cmake --build "$folder" --target bench_step cairn backend_cpu >/dev/null
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
trap '' PIPE # of a process that ended: its answer is missing
declare -A ask hear failed
export CAIRN_BACKEND_DIR=$folder XDG_CACHE_HOME=$work/cache OMP_NUM_THREADS HF_HUB_OFFLINE=1 # rates are those of this run
OMP_NUM_THREADS=$(nproc)
peer=${PEER_PYTHON:-}
if [ -z "$peer" ] || ! "$peer" -c 'import torch, transformers' 2>"$work/errors"; then
    say "PyTorch is left out: ${peer:-PEER_PYTHON is not set} ${peer:+$(tail -n 1 "$work/errors")}"
    peer=''
fi

number() { sed -n "s/.*\"$1\": \([0-9.e+-]*\).*/\1/p"; } # NAME: of one line of JSON
mib() { number "$1" | awk '{ printf "%.1f", $1 / 1048576 }'; }

# plan_auto BUDGET: in MiB
plan_auto() {
    "$folder/cairn" plan --model-config "$config" --batch-size "$batch" --max-seq-length "$length" --padded --precision "$precision" \
        --recompute auto --memory-budget "$1MiB" --json
}

# auto_cases: "cairn-auto|MIXTURE|budget|planned seconds|bound of seconds", from the smallest plan to what `none` takes
auto_cases() {
    local low high budget line
    plan_auto 1 >"$work/plans" 2>"$work/errors" || true
    low=$(sed -n 's/.*fits with --memory-budget \([0-9]*\)MiB.*/\1/p' "$work/errors")
    high=$(grep -m 1 '"name": "none"' "$work/plans" | number peak | awk '{ print int($1 / 1048576) + 2 }')
    [ -n "$low" ] && [ -n "$high" ] || die 1 "cairn plan names no smallest budget: $(tail -n 1 "$work/errors")"
    for k in {0..7}; do
        budget=$((low + k * (high - low) / 7))
        line=$(plan_auto "$budget" | grep '"name": "auto')
        sed -E "s/\"while_saving\": (null|\{[^}]*\}), //; s/.*\"auto \(([^)]*)\)\".*\"step_s\": ([^,]*), \"bound\".*\"step_s\": ([^}]*)\}.*/cairn-auto|\1|$budget|\2|\3/" <<<"$line"
    done | awk -F'|' '!seen[$2]++' # two budgets may have one plan
}

cairn_cases() {
    auto_cases
    printf 'cairn|%s|||\n' none lean ffn selective full every:2
}

peer_cases() {
    printf 'pytorch|%s|||\n' off on every:2 products second attention
    printf 'pytorch-compiled|budget:%s|||\n' 1 0.75 0.5 0.25 0
}

# start_peer GROUP: a process that measures the settings which it reads
start_peer() {
    local to from pipe=$work/$name.$1
    mkfifo "$pipe.ask" "$pipe.hear"
    "$peer" "$cairn_root/bench/peer_cpu.py" --serve --model-config "$config" --batch "$batch" --seq "$length" --precision "$precision" \
        --warmup 1 --steps 1 <"$pipe.ask" >"$pipe.hear" 2>>"$work/errors" &
    exec {to}>"$pipe.ask" {from}<"$pipe.hear"
    ask[$1]=$to hear[$1]=$from
}

stop_peer() { # GROUP
    local to=${ask[$1]} from=${hear[$1]}
    exec {to}>&- {from}<&-
}

# measure_case GROUP NAME: sets `line` to an object with step_s, resident_bytes, other_bytes and, once, batch_bytes
measure_case() {
    line=''
    if [ "${1%-auto}" != cairn ]; then
        echo "$2" >&"${ask[$1]}" && IFS= read -r -t 1200 line <&"${hear[$1]}"
    else
        rm -f "$work/line"
        timeout 600 "$folder/bench_step" --product 512 --json "$work/line" "$config" "$batch" "$length" 1 "$precision" "$2" \
            >/dev/null 2>"$work/errors" && line=$(grep '"kind": "step"' "$work/line")
    fi || line="{\"failed\": \"$(tail -n 1 "$work/errors" | tr '\n\t"' '   ')\"}"
}

# measure_round ROUND CASE...
measure_round() {
    local round=$1 each group what budget planned bound line
    shift
    for each in "$@"; do
        IFS='|' read -r group what budget planned bound <<<"$each"
        [ -z "${failed[$group $what]:-}" ] || continue
        measure_case "$group" "$what"
        if [[ $line == *'"failed"'* ]]; then
            failed[$group $what]=1
            printf '# failed\t%s\t%s\t%s\t%s\n' "$name" "$group" "$what" "$line" | tee -a "$out" >&2
            continue
        fi
        printf '%s\t' "$name" "$round" "$group" "$what" "$budget" "$(number step_s <<<"$line")" "$(mib resident_bytes <<<"$line")" \
            "$(mib other_bytes <<<"$line")" "$(mib batch_bytes <<<"$line")" "$planned" | tee -a "$out" >&2
        printf '%s\n' "$bound" | tee -a "$out" >&2
    done
}

measure_shape() {
    local until=$((SECONDS + 60 * minutes / ${#shapes[@]})) cases n round begin
    failed=()
    [ -z "$peer" ] || { start_peer pytorch && start_peer pytorch-compiled; }
    cairn_cases >"$work/cairn.cases"
    { [ -z "$peer" ] || peer_cases; } >"$work/peer.cases"
    mapfile -t cases < <(paste -d '\n' "$work/cairn.cases" "$work/peer.cases" | sed '/^$/d')
    n=${#cases[@]}
    if [ "$rounds" -eq 0 ]; then
        while IFS='|' read -r group what _; do
            [ "$group" != pytorch-compiled ] || { measure_case "$group" "$what" && say "$name $what: $line"; }
        done <"$work/peer.cases"
    fi
    for ((round = 1; round <= rounds; round++)); do
        [ "$minutes" -eq 0 ] || [ "$SECONDS" -lt "$until" ] || break
        begin=$(((round - 1) * n / rounds))
        measure_round "$round" "${cases[@]:begin}" "${cases[@]:0:begin}"
    done
    [ -z "$peer" ] || { stop_peer pytorch && stop_peer pytorch-compiled; }
    wait
}

{
    echo "# $(date -u +%Y-%m-%d), $(lscpu | sed -n 's/^Model name: *//p'), $(nproc) threads, $precision, commit $(git -C "$cairn_root" rev-parse --short HEAD)"
    [ -z "$peer" ] || echo "# $("$peer" -c 'import torch, transformers; print("PyTorch", torch.__version__, "Transformers", transformers.__version__)')"
    printf 'shape\tround\tgroup\tname\tbudget_mib\tstep_s\tresident_mib\tother_mib\tbatch_mib\tplanned_s\tbound_s\n'
} >"$out"
for shape in "${shapes[@]}"; do
    IFS=: read -r name config batch length <<<"$shape"
    echo "# shape	$name	$(basename "$config" .json), $batch × $length tokens" >>"$out"
    measure_shape
done
[ "$rounds" -eq 0 ] || say "measured: $out; bench/plans.sh --draw $out draws it"
