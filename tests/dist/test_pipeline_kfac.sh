#!/usr/bin/env bash
# K-FAC in a pipeline: weights, moments and inverses of every schedule are those of as many data-parallel ranks as it
# has replicas, to the last bit, with and without recomputation, whatever the lag; a run resumes in the middle of a set
# with other stages, and without a pipeline.
set -euo pipefail
# shellcheck source=tests/dist/ranks.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/ranks.sh"

make_tiny_bert tiny 4
small_data 110
glue=(glue --model-config tiny/config.json --vocab tiny/vocab.txt --data-dir data --do-train --batch-size 27
    --micro-batch-tokens 256 --bucket-size 64KiB --kfac-interval 3 --max-steps 7)

# run RANKS DIR OPTION...
run() {
    start "$1" log "${this[@]}" --output-dir "$2" "${@:3}"
    ended 0
}

# one replica; lag 3 is that of a pipeline
this=("${glue[@]}" --backend ref --kfac-lag 3)
run 1 plain1
for schedule in $(quick_or_deep "1f1b" "gpipe 1f1b zb-h1 zb-v interleaved"); do
    run 2 "$schedule" --pipeline "$schedule"
    same plain1 "$schedule" 7 kfac
    [ "$(grep -c '"kfac_failed": 0' "$schedule/metrics.jsonl")" -eq 2 ] || complain "$schedule: not 2 complete sets"
    grep -q '"filled": [0-9.]*[1-9]' "$schedule/metrics.jsonl" || complain "$schedule: nothing ran in a gap"
    # the set that is complete in step 6 is the first whose statistics and inverses were measured
    [ "$(grep -o '"fill_costs": "[a-z]*"' "$schedule/metrics.jsonl" | uniq -c | tr -s ' \n' ' ')" = \
        ' 6 "fill_costs": "predicted" 1 "fill_costs": "measured" ' ] || complain "$schedule: other costs than expected"
done

# computed again without a pipeline, with the lag of its default, and a run without one by a pipeline
for verified in "1 1f1b --pipeline none" "2 plain1 --pipeline zb-v"; do
    read -r n dir option schedule <<<"$verified"
    start "$n" log verify "$dir" "$option" "$schedule"
    ended 0
    grep -q "7 steps computed again, up to step 7; all agree, as does 1 checkpoint" log.0 ||
        complain "verify $dir $option $schedule: $(tail -n 2 log.0)"
done

# two replicas, which share out the inverses
this=("${glue[@]}" --backend cpu --kfac-lag 2 --optimizer lamb --wire bf16)
run 2 plain2
run 4 zb --pipeline zb-h1 --stages 2 --stage-layers 3,1 --recompute full
same plain2 zb 7 kfac
run 2 chimera --pipeline chimera --recompute selective --poison
same plain2 chimera 7 kfac

# no lag: every inverse is ready in its step; from step 5 on their places come from measured times
this=("${glue[@]}" --backend cpu --kfac-lag 0)
run 1 now
run 2 now2 --pipeline zb-v
grep -q "K-FAC's work is assigned by measured times" log.0 || complain "zb-v: nothing was assigned anew"
[ "$(grep -c '"fill_costs": "measured"' now2/metrics.jsonl)" -eq 3 ] || complain "zb-v: measured costs in other steps"
same now now2 7 kfac

# a step that fails leaves the inverses of the steps before: what it gathered is dropped
this=("${glue[@]}" --backend ref --kfac-interval 1 --kfac-lag 1 --learning-rate 100 --weight-decay 10 --warmup 0
    --schedule constant --max-steps 60)
start 1 log "${this[@]}" --output-dir bad1
ended 1
start 2 log "${this[@]}" --output-dir bad2 --pipeline zb-v
ended 1
for file in model optimizer kfac; do
    cmp bad1/checkpoint-*/$file.safetensors bad2/checkpoint-*/$file.safetensors || complain "after a failed step: $file"
done

# saved in the middle of a set, resumed with other stages and without
this=("${glue[@]}" --backend ref --kfac-lag 3 --save-steps 1 --keep 20)
run 2 steps --pipeline 1f1b
same plain1 steps 7 kfac
for next in "5 1" "4 4 1f1b"; do
    read -r at n schedule <<<"$next"
    mkdir "from$at"
    cp -r "steps/checkpoint-$at" "from$at"
    # shellcheck disable=SC2086 # nothing without a schedule
    run "$n" "from$at" ${schedule:+--pipeline $schedule}
    grep -q "step $at of 7" log.0 || complain "does not resume from step $at"
    same plain1 "from$at" 7 kfac
done
mkdir into
start 1 log "${this[@]}" --output-dir into --save-steps 5
ended 0
rm -r into/checkpoint-7
run 2 into --pipeline zb-h1
same plain1 into 7 kfac

# pretraining: all pipelines of as many replicas
if [ -n "${CAIRN_TEST_DEEP:-}" ] &&
    "$CAIRN_BINARY" wiki --input "$source_dir/tasks/pretrain/sample/sample.xml" --output-dir text 2>/dev/null &&
    "$CAIRN_BINARY" vocab --input text --size 600 --output vocab.txt 2>/dev/null &&
    "$CAIRN_BINARY" shards --input text --vocab vocab.txt --output-dir shards --max-seq-length 64 2>/dev/null; then
    make_tiny_config tiny4.json 600 4
    this=(pretrain --data-dir shards --vocab vocab.txt --model-config tiny4.json --batch-size 24 --max-seq-length 64
        --micro-batch-tokens 256 --max-steps 7 --backend cpu --do-train --kfac-interval 3)
    run 1 words1 --pipeline gpipe --stages 1
    for schedule in gpipe 1f1b zb-h1 zb-v interleaved; do
        run 2 "words $schedule" --pipeline "$schedule"
        same words1 "words $schedule" 7 kfac
    done
    run 2 words2 --pipeline gpipe --stages 1
    run 2 wordsc --pipeline chimera --recompute full
    same words2 wordsc 7 kfac
fi

finish
