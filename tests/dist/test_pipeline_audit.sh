#!/usr/bin/env bash
# --audit in a pipeline: without a fault every schedule has the bits of a run without it; a bit that flips in a work is
# found, the rank whose work it was is named, also where all places of its pipeline have other gradients, and the step
# is done again.
set -euo pipefail
# shellcheck source=tests/dist/ranks.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/ranks.sh"

make_tiny_bert tiny 4
small_data 60
glue=(glue --model-config tiny/config.json --vocab tiny/vocab.txt --data-dir data --do-train --backend ref
    --batch-size 12 --micro-batch-tokens 128 --max-steps 4 --snapshot-steps 0)

# audited RANKS CODE DIR OPTION...: a run of "${this[@]}"
audited() {
    start "$1" log "${this[@]}" --output-dir "$3" "${@:4}"
    ended "$2"
}
# told TEXT...: rank 0 says it
told() {
    local text
    for text in "$@"; do grep -q -- "$text" log.0 || complain "'$text' is not in: $(tail -n 4 log.0)"; done
}
same() { cmp -s "$1/model.safetensors" "$2/model.safetensors" || complain "$1 and $2 have other weights"; }
# flip RANK STEP ATTEMPTS INSTR: bit 20 of its first output, whenever it ran
flip() { export CAIRN_TEST_FLIP="$1 $2 $3 $4 0 20"; }

# ---- no fault ----
this=("${glue[@]}")
for n in 1 2; do audited "$n" 0 "quiet$n"; done
for clean in "1 2 chimera --shard optimizer" "2 4 zb-h1 --stages 2" $(quick_or_deep "" "1|1|gpipe|--stages|4 1|2|zb-v 2|4|interleaved|--stages|4 2|4|gpipe|--stages|2 2|4|chimera|--stages|2"); do
    read -r pipelines n schedule <<<"${clean//|/ }"
    like=$pipelines dir="clean $schedule"
    case $schedule in chimera*) like=$((2 * pipelines)) ;; esac
    [ -d "quiet$like" ] || audited "$like" 0 "quiet$like"
    # shellcheck disable=SC2086 # a name and flags
    audited "$n" 0 "$dir" --audit recompute,100% --recompute full --pipeline $schedule
    case $pipelines in 1) told "there is one pipeline" ;; 2) told "the second time by another pipeline" ;; esac
    told "4 of them computed twice, 0 differences"
    same "quiet$like" "$dir"
    [ ! -e "$dir/audit.jsonl" ] || complain "$schedule: a false alarm: $(cat "$dir/audit.jsonl")"
done

# K-FAC's statistics are those of the own share alone, also where those of a former step wait in slots
this=("${glue[@]}" --kfac-interval 3 --kfac-lag 3 --max-steps 7)
audited 2 0 kfac2
audited 4 0 kfac4 --audit 100% --pipeline 1f1b --stages 2
same kfac2 kfac4

# ---- a fault in a tensor that is made again, of one rank in one step ----
# The first stage's instrs have the numbers of a plan of the whole model; behind the boundary the last one's first is its
# layer's query, key and value.
this=("${glue[@]}" --recompute full --audit recompute)
first=$("$CAIRN_BINARY" plan --model-config tiny/config.json --backend ref --recompute full --audit recompute \
    --max-seq-length 128 --batch-size 12 --explain 2>/dev/null | awk '$2 == "forward" && / linear +l0.qkv/ && !n++ { print $1 }')
for fault in "0 $first l0.qkv 1f1b" "3 1 l2.qkv 1f1b"; do
    read -r rank instr tensor schedule <<<"$fault"
    flip "$rank" 2 1 "$instr"
    audited 4 0 "once$rank" --pipeline "$schedule" --stages 2
    told "step 2, attempt 1: .* rank $rank on .*: instr .* (linear $tensor') made tensor '$tensor'' with other bits .* row 0"
    grep -q "\"step\": 2, \"attempt\": 1, .*\"rank\": $rank, .*\"tensor\": \"$tensor.\", \"row\": 0,.*\"excluded\": false" \
        "once$rank/audit.jsonl" || complain "audit.jsonl is wrong: $(cat "once$rank/audit.jsonl")"
    [ "$(wc -l <"once$rank/audit.jsonl")" -eq 1 ] || complain "others are blamed, too: $(cat "once$rank/audit.jsonl")"
    same quiet2 "once$rank"
done

# ---- computed twice: all places of the pipeline have other gradients, and the first wrong boundary says whose fault it is ----
this=("${glue[@]}" --recompute full --audit 100%)
blamed() { sed -n 's/.*"rank": \([0-9]*\), .*"gradients": "\([a-z]*\)".*/\1 \2/p' "$1/audit.jsonl" | tr '\n' ' '; }
for rank in 1 2; do # of the first stage, and of the last
    flip "$rank" 2 1 4
    audited 4 0 "suspect$rank" --pipeline 1f1b --stages 2
    pair=$((rank / 2 * 2))
    [ "$(blamed "suspect$rank")" = "$pair suspect $((pair + 1)) suspect " ] || complain "rank $rank: $(cat "suspect$rank/audit.jsonl")"
    same quiet2 "suspect$rank"
done
flip 1 2 9 4 # one pipeline: the second computation contradicts the first
audited 2 77 alone --pipeline 1f1b
told "step 2: rank 1 on .* computed wrongly twice"
[ "$(blamed alone)" = "1 wrong 1 wrong " ] || complain "alone: $(cat alone/audit.jsonl)"
flip 1 2 9 4 # three pipelines: most computations of a share are right
audited 6 77 three --pipeline zb-h1 --stages 2
told "step 2: rank 1 on .* computed wrongly twice"

# ---- memory ----
export CAIRN_TEST_FLIP="3 3 weights 50 77"
audited 4 78 damaged --save-steps 1 --keep 9 --pipeline 1f1b --stages 2
told "step 3: the memory of rank 3 on .* changed since the last update"
unset CAIRN_TEST_FLIP
audited 4 0 damaged --save-steps 1 --keep 9 --pipeline 1f1b --stages 2
same quiet2 damaged

finish
