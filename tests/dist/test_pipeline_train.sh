#!/usr/bin/env bash
# Training by a pipeline: every schedule has the weights, moments and evaluation of one rank (or of as many ranks as it
# has replicas) to the last bit, an evaluation without training too; a run resumes with other stages and ranks; signals,
# lost ranks and refusals.
set -euo pipefail
# shellcheck source=tests/dist/ranks.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/ranks.sh"

make_tiny_bert tiny 4
small_data 110
glue=(glue --model-config tiny/config.json --vocab tiny/vocab.txt --data-dir data --do-train --batch-size 27
    --max-grad-norm 0.05 --micro-batch-tokens 128)
steps=(--max-steps 4)

# piped RANKS REFERENCE SCHEDULE...: a run of "${this[@]}" by this pipeline equals the reference
piped() {
    local n=$1 like=$2 out
    shift 2
    out="$n of $*"
    start "$n" log "${this[@]}" --output-dir "$out" --pipeline "$@"
    ended 0
    same "$like" "$out" 4
}

# drawn DIR RANKS STEPS: the works of all ranks in so many steps: each once, one after another on a rank; in the trace and
# the picture, too
drawn() {
    local of=$1/profile
    awk -F , -v ranks="$2" -v steps="$3" '
        NR == 1 { next }
        $10 < $9 || $9 < end[$2] - 1e-6 { print "overlap: " $0; bad = 1 }
        { end[$2] = $10; seen[$1]; rank[$2] }
        $6 == "update" { updates++ }
        $5 != "" { n[$1 "," $4 "," $5 "," $7] += $6 == "F" ? 1 : $6 == "B" ? 10 : $6 == "I" ? 4 : 6 }
        END {
            for (k in n) if (n[k] != 11) { print "F, B, I, W of " k ": " n[k]; bad = 1 }
            for (k in n) works++
            for (k in seen) found++
            for (k in rank) places++
            exit bad || !works || places != ranks || found != steps || updates != ranks * steps
        }' "$of/work.csv" || complain "$of/work.csv: expected each work of $3 steps on $2 ranks once"
    [ "$(grep -c '"cat": "work"' "$of/trace.json")" -eq "$(($(wc -l <"$of/work.csv") - 1))" ] ||
        complain "$of/trace.json has other works than work.csv"
    grep -q "planned with the measured medians" "$of/timeline.svg" && grep -q "measured in step" "$of/timeline.svg" ||
        complain "$of/timeline.svg lacks a panel"
    grep -q "Timeline of the pipeline" "$1/report.html" || complain "$1/report.html has no timeline"
}

# verified RANKS CODE TEXT RUN OPTION...: cairn verify ends with this code and says this
verified() {
    start "$1" verify verify "${@:4}"
    ended "$2"
    grep -q -- "$3" verify.0 || complain "verify ${*:4} on $1 ranks: expected '$3', got: $(tail -n 2 verify.0)"
}

# plain RANKS OPTION...
plain() {
    start "$1" log "${this[@]}" --output-dir "plain$1" "${@:2}"
    ended 0
}

this=("${glue[@]}" "${steps[@]}" --backend ref --do-eval --eval-every 2 --digest-steps 2)
plain 1
for schedule in $(quick_or_deep "zb-v" "gpipe 1f1b zb-h1 zb-v interleaved"); do
    piped 2 plain1 "$schedule"
    cmp plain1/eval_results.txt "2 of $schedule/eval_results.txt" || complain "$schedule: another evaluation"
done
for schedule in "gpipe --stages 4" $(quick_or_deep "" "1f1b|--stages|3 zb-h1|--stages|2"); do # on one rank
    # shellcheck disable=SC2086 # a name and flags
    piped 1 plain1 ${schedule//|/ }
    cmp plain1/eval_results.txt "1 of ${schedule//|/ }/eval_results.txt" || complain "$schedule: another evaluation"
done
drawn "1 of gpipe --stages 4" 1 3
cmp plain1/best/model.safetensors "2 of zb-v/best/model.safetensors" || complain "another best model"
drawn "2 of zb-v" 2 3
digests_of() { grep -o '"grads_digest.*' "$1/metrics.jsonl"; }
[ "$(digests_of plain1)" = "$(digests_of "2 of zb-v")" ] || complain "zb-v has other digests"

# verified by the same pipeline, by another one on one rank and without one; a run without a pipeline by one
agree="4 steps computed again, up to step 4; all agree, as does 1 checkpoint"
verified 2 0 "$agree" "2 of zb-v"
verified 1 0 "$agree" "2 of zb-v" --pipeline gpipe --stages 3
verified 1 0 "$agree" "2 of zb-v" --pipeline none
verified 2 0 "$agree" plain1 --pipeline 1f1b
verified 2 2 "launch --ranks 1 -- verify" "2 of zb-v" --pipeline none
verified 4 2 "computed by 1 replicas, and this pipeline has 2" "2 of zb-v" --pipeline 1f1b --stages 2
sed -i '/"step": 3,/s/"loss": /"loss": 9/' "2 of zb-v/metrics.jsonl"
verified 2 78 "step 3 is the first that differs: the loss was 9" "2 of zb-v"
# without training: evaluation, predictions and labels of texts have the bits of one rank
alone=(glue --model plain1 --data-dir data --backend ref --do-eval --do-predict --eval-batch-size 16)
texts=(predict --model plain1 --input data/dev_matched.tsv --text-columns "sentence1,sentence2" --backend ref)
start 1 log "${alone[@]}" --output-dir alone
ended 0
start 1 log "${texts[@]}" --output labels.tsv
ended 0
for case in "2 1f1b --stages 4" "4 chimera --stages 2" $(quick_or_deep "" "1|gpipe|--stages|4 2|zb-v 4|zb-h1|--stages|2"); do
    read -ra by <<<"${case//|/ }"
    start "${by[0]}" log "${alone[@]}" --output-dir by --pipeline "${by[@]:1}"
    ended 0
    diff -r alone by || complain "$case: another evaluation"
    rm -r by
    start "${by[0]}" log "${texts[@]}" --output by.tsv --pipeline "${by[@]:1}"
    ended 0
    cmp labels.tsv by.tsv || complain "$case: other labels"
done
rm -r plain1

# replicas, stages of different sizes, vector code, bf16 on the wire
this=("${glue[@]}" "${steps[@]}" --backend cpu --optimizer lamb --wire bf16)
plain 2
piped 4 plain2 zb-h1 --stages 2 --stage-layers 3,1 --recompute full
drawn "4 of zb-h1 --stages 2 --stage-layers 3,1 --recompute full" 4 3
piped 2 plain2 chimera --recompute selective --profile 2
drawn "2 of chimera --recompute selective --profile 2" 2 2
profile="2 of chimera --recompute selective --profile 2/profile"
calls=$(awk -F , 'NR > 1 { n += $4 } END { print n }' "$profile/kernels.csv")
[ "$(grep -c '"instr": ' "$profile/trace.json")" -eq "$calls" ] || complain "$profile: kernels.csv has $calls calls, the trace others"
grep -q '"pid": 1, .*"instr": ' "$profile/trace.json" || complain "$profile/trace.json has no instrs of rank 1"
# both ranks have sums of pieces; tests/dist/test_pipeline.c shows that they begin within works
for rank in 0 1; do
    grep -q "\"pid\": $rank, .*\"name\": \"reduce" "$profile/trace.json" || complain "$profile/trace.json has no sums of rank $rank"
done

# a step of one sequence leaves nothing for the other replica
this=("${glue[@]}" "${steps[@]}" --backend ref --batch-size 1)
start 2 log "${this[@]}" --output-dir single
ended 0
piped 2 single chimera --poison

# fp16 skips the same updates
if [ -n "${CAIRN_TEST_DEEP:-}" ]; then
    this=("${glue[@]}" "${steps[@]}" --backend ref --precision fp16 --init-loss-scale 4294967296)
    plain 1
    grep -q "is skipped" log.0 || complain "nothing overflowed at a loss scale of 2^32"
    rm -rf ./*" of "*
    piped 2 plain1 1f1b
fi

# 2 steps of 5 by a pipeline, then on one rank, then by another one
this=("${glue[@]}" --backend ref --max-steps 5 --save-steps 1 --keep 10)
start 1 once "${this[@]}" --output-dir once
ended 0
start 2 staged "${this[@]}" --output-dir staged --pipeline 1f1b
ended 0
same once staged 5
for next in "1" $(quick_or_deep "" "1|gpipe|--stages|3") "4 1f1b"; do
    read -r n schedule <<<"${next//|/ }"
    rm -r staged/checkpoint-[345]
    rm staged/model.safetensors staged/run.json
    # shellcheck disable=SC2086 # nothing without a schedule
    start "$n" staged "${this[@]}" --output-dir staged ${schedule:+--pipeline $schedule}
    ended 0
    grep -q "resuming from staged/checkpoint-" staged.0 || complain "the run on $n ranks did not resume"
    same once staged 5
done

# pretraining, whose word embedding belongs to the first stage and the last: all pipelines have the same bits
if "$CAIRN_BINARY" wiki --input "$source_dir/tasks/pretrain/sample/sample.xml" --output-dir text 2>/dev/null &&
    "$CAIRN_BINARY" vocab --input text --size 600 --output vocab.txt 2>/dev/null &&
    "$CAIRN_BINARY" shards --input text --vocab vocab.txt --output-dir shards --max-seq-length 64 --eval-fraction 0.2 \
        2>/dev/null; then
    this=(pretrain --data-dir shards --eval-dir shards/eval --vocab vocab.txt --model-config tiny4.json --batch-size 24
        --eval-batch-size 8 --max-seq-length 64 --micro-batch-tokens 256 --max-steps 4 --backend ref --do-train --do-eval)
    make_tiny_config tiny4.json 600 4
    start 1 log "${this[@]}" --output-dir words1
    ended 0
    start 1 log "${this[@]}" --output-dir stage1 --pipeline gpipe --stages 1
    ended 0
    near words1 stage1 # the two gradients of the word embedding are added in another order
    start 2 log pretrain --eval-dir shards/eval --model stage1 --eval-batch-size 8 --backend ref --do-eval \
        --output-dir words --pipeline chimera
    ended 0
    cmp stage1/eval_results.txt words/eval_results.txt || complain "another evaluation of words without training"
    rm -rf ./*" of "*
    for schedule in "zb-v --poison" $(quick_or_deep "" "1f1b interleaved"); do
        # shellcheck disable=SC2086 # a name and a flag
        piped 2 stage1 $schedule
        cmp stage1/eval_results.txt "2 of $schedule/eval_results.txt" || complain "$schedule: another evaluation"
    done
    verified 1 0 "$agree" "2 of zb-v --poison" --pipeline gpipe --stages 2
    verified 1 2 "agree with this run's to rounding alone" "2 of zb-v --poison" --pipeline none
    piped 1 stage1 gpipe --stages 4 --poison --audit recompute,100% --recompute full # a place with both uses of the word embedding, in two stages
    if [ -n "${CAIRN_TEST_DEEP:-}" ]; then piped 2 stage1 zb-h1 --stages 4; fi
    this+=(--wire bf16) # of two replicas: its sums are rounded, the word embedding's two gradients are not
    start 2 log "${this[@]}" --output-dir stage2 --pipeline gpipe --stages 1
    ended 0
    rm -rf ./*" of "*
    for next in "2 chimera" "4 zb-v --stages 4 --shard optimizer" $(quick_or_deep "" "4|1f1b|--stages|2 4|interleaved|--stages|4"); do
        read -r n schedule <<<"${next//|/ }"
        # shellcheck disable=SC2086 # a name and flags
        piped "$n" stage2 $schedule
    done
else
    echo "without shards: pretraining is left out"
fi

# a signal to one rank: all save and end with 75, and the same command goes on
long=("${glue[@]}" --backend ref --max-steps 100000 --schedule constant --warmup 0 --save-every 0)
slowly
start 2 stopped "${long[@]}" --output-dir stopped --pipeline 1f1b
wait_until "${hang_limit:-600}" reached stopped 3 || complain "stopped does not get to its third step"
kill -TERM -- "$(pgrep -P "${ranks[1]}")"
ended 75
compgen -G "stopped/checkpoint-*/optimizer.safetensors" >/dev/null || complain "nothing was saved after a signal"
start 2 stopped "${long[@]}" --output-dir stopped --pipeline 1f1b --max-time 1
ended 75
grep -q "resuming from stopped/checkpoint-" stopped.0 || complain "the run did not go on"

# a lost rank ends the others; the state in memory is saved, and is that of one rank
for lost in $(quick_or_deep 1 "0 1"); do
    slowly
    start 2 lost "${long[@]}" --output-dir "lost$lost" --pipeline 1f1b --snapshot-steps 1
    wait_until "${hang_limit:-600}" reached "lost$lost" 4 || complain "lost$lost does not get to its fourth step"
    lose "$lost"
    grep -q "rank $lost on .* is saved in lost$lost" "lost.$((1 - lost))" ||
        complain "the other rank does not say what is saved: $(tail -n 1 "lost.$((1 - lost))")"
    saved=$(compgen -G "lost$lost/checkpoint-*") || { complain "nothing is saved in lost$lost" && continue; }
    quickly
    start 1 alone "${long[@]}" --output-dir "alone$lost" --max-steps "${saved#*checkpoint-}"
    ended 0
    cmp "$saved/optimizer.safetensors" "alone$lost/${saved#*/}/optimizer.safetensors" || complain "$saved: other moments"
done

# what a run does not have is refused by name, before the first step
refused() {
    expect 2 "$CAIRN_BINARY" "${glue[@]}" --max-steps 1 --backend ref --output-dir refused "${@:2}"
    says "$1"
}
refused "give the number of stages" --pipeline 1f1b
refused "takes 2 ranks" --pipeline chimera --stages 2
refused "expected one of: none gpipe" --pipeline all --stages 2
refused "needs --pipeline" --stages 2
refused "needs as many layers" --pipeline gpipe --stages 9
refused "--recompute offload needs a device" --pipeline gpipe --stages 1 --recompute offload
[ ! -e refused/metrics.jsonl ] || complain "a refused run trained"

finish
