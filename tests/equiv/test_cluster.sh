#!/usr/bin/env bash
# --virtual-ranks: a run has the same bits on any cluster. Ranks, threads, --micro-batch-tokens, recompute policy and
# --shard are combined, in fine-tuning, in pretraining and with K-FAC; each run is stopped half-way and resumed with
# another combination. Weights, both moments, K-FAC's inverses, losses and digests are compared with those of one run.
# CAIRN_TEST_DEEP=1 takes all combinations.
set -euo pipefail
# shellcheck source=tests/dist/ranks.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../dist/ranks.sh"

export CAIRN_SNAPSHOT_STEPS=0 OMP_WAIT_POLICY=passive
make_tiny_bert tiny
small_data 170
glue=(glue --model-config tiny/config.json --vocab tiny/vocab.txt --data-dir data --do-train --batch-size 41
    --max-seq-length 48 --max-grad-norm 0.05)
make_sample_text
make_tiny_config tiny.json
expect 0 "$CAIRN_BINARY" shards --input text --vocab vocab.txt --output-dir shards --max-seq-length 64 --dupe-factor 1
pretrain=(pretrain --model-config tiny.json --vocab vocab.txt --data-dir shards --max-seq-length 64 --batch-size 41
    --optimizer lamb)
common=(--virtual-ranks 8 --grain-tokens 96 --bucket-size 64KiB --max-steps 4 --save-steps 2 --keep 9 --digest-steps 1)

# all V: a line for each combination of ranks, threads, micro-batch, policy and what is sharded; few of eight ranks
all() {
    local n t m p s
    if [ "$1" = 12 ]; then
        for n in 1 2 3 4 6 12; do for m in 96 200 step; do for s in none optimizer; do
            [ "$n $s" = "1 optimizer" ] || echo "$n 1 $m selective $s"
        done; done; done
        return
    fi
    for n in 1 2 4 8; do for t in 1 2 4; do for m in 96 200 step; do
        for p in none lean ffn selective half-attention full every:2 auto; do for s in none optimizer; do
            [ "$n $s" = "1 optimizer" ] || { [ "$n" = 8 ] && [ "$t $m" != "1 96" ]; } || echo "$n $t $m $p $s"
        done; done
    done; done; done
}
some() {
    cat <<'END'
4 2 200 lean optimizer
1 2 96 every:2 none
END
}

# run DIR N THREADS MICRO POLICY SHARD OPTION...: the task's run, with a combination
run() {
    threads=$3
    start "$2" "$1" "${task[@]}" "${common[@]}" --output-dir "$1" --micro-batch-tokens "$4" --recompute "$5" --shard "$6" "${@:7}"
    ended 0
}

# result DIR: what must be equal
result() {
    cat "$1"/model.safetensors "$1"/checkpoint-4/*.safetensors | md5sum
    sed -E 's/"(seq_per_s|tokens_per_s|peak_bytes|wall_s|trained_s)": [^,}]*//g' "$1/metrics.jsonl"
}

mapfile -t cases < <(if [ "${CAIRN_TEST_DEEP:-}" = 1 ]; then all 8; else some; fi)
made=0
# every_case: each combination, and the next one from the middle of its run
every_case() {
    local i case next
    run base 1 1 step none none
    result base >wanted
    for i in "${!cases[@]}"; do
        read -ra case <<<"${cases[i]}"
        read -ra next <<<"${cases[(i * 7 + 5) % ${#cases[@]}]}"
        run run "${case[@]}"
        result run | cmp -s - wanted || complain "${task[0]}: ${case[*]} has other bits: $(result run | diff - wanted)"
        rm -r run/checkpoint-4 run/model.safetensors run/run.json
        run run "${next[@]}"
        grep -q "resuming from run/checkpoint-2" run.0 || complain "the run did not resume"
        ! grep -q "not bit-exact" run.0 || complain "${next[*]}: $(grep 'not bit-exact' run.0)"
        result run | cmp -s - wanted ||
            complain "${task[0]}: ${case[*]}, from the middle ${next[*]}, has other bits: $(result run | diff - wanted)"
        made=$((made + 2))
        rm -r run
    done
}

task=("${glue[@]}" --backend cpu) && every_case
verified=("$CAIRN_BINARY" verify base)
expect 0 "${verified[@]}"
says "4 steps computed again, up to step 4; all agree, as do 2 checkpoints"
start 2 verify verify base
ended 0
rm -r base
[ "${CAIRN_TEST_DEEP:-}" = 1 ] || cases=("2 2 200 lean optimizer")
task=("${pretrain[@]}" --backend cpu) && every_case
rm -r base
# K-FAC: an optimizer that is not sharded
mapfile -t cases < <(if [ "${CAIRN_TEST_DEEP:-}" = 1 ]; then all 8 | grep 'none$'; else echo "2 2 200 lean none"; fi)
task=("${glue[@]}" --backend ref --kfac-interval 2 --kfac-lag 1) && every_case
expect 0 "${verified[@]}"
says "all agree, as do 2 checkpoints"
rm -r base
echo "$made runs of ${#cases[@]} combinations"
if [ "${CAIRN_TEST_DEEP:-}" = 1 ]; then
    common+=(--virtual-ranks 12)
    mapfile -t cases < <(all 12)
    made=0
    task=("${glue[@]}" --backend cpu) && every_case
    rm -r base
    task=("${pretrain[@]}" --backend cpu) && every_case
    rm -r base
    echo "$made runs of ${#cases[@]} combinations, of twelve virtual ranks"
    common+=(--virtual-ranks 8)
fi

# on ref, with an audit; a rank for each virtual one
task=("${glue[@]}" --backend ref --audit "recompute,100%") common+=(--recompute full --virtual-ranks 4)
run one 1 1 96 full none
run two 2 1 200 full optimizer
run four 4 1 step full none
for n in two four; do cmp <(result one) <(result $n) || complain "ref: one rank and $n have other bits"; done
rm -r two

# Any divisor of the number of virtual ranks: a rank has several branches of the tree, some of unequal size; the last
# virtual ranks have no sequence.
common+=(--virtual-ranks 6 --batch-size 5)
rm -r one
run one 1 1 step none none
run two 2 1 200 full optimizer
run three 3 1 96 lean none
for n in two three; do cmp <(result one) <(result $n) || complain "six virtual ranks: one rank and $n have other bits"; done
[ ! -e two/audit.jsonl ] || complain "an audit found a difference: $(cat two/audit.jsonl)"
rm -r two

# all ranks are killed, and fewer go on from their memory
task=("${glue[@]}" --backend ref --optimizer lamb --shard optimizer --schedule constant --warmup 0 --virtual-ranks 4
    --snapshot-steps 1 --save-every 0)
slowly
start 2 killed "${task[@]}" --output-dir killed --max-steps 100000
wait_until "${hang_limit:-600}" reached killed 4 || complain "killed does not get to its fourth step"
kill_all
quickly
at=$(($(losses killed | wc -l) + 2))
start 1 killed "${task[@]}" --output-dir killed --max-steps "$at" --micro-batch-tokens step --override
ended 0
grep -q "resuming from the snapshot" killed.0 || complain "the run did not resume from memory"
start 2 unkilled "${task[@]}" --output-dir unkilled --max-steps "$at"
ended 0
cmp {killed,unkilled}/model.safetensors || complain "killed: other weights"
cmp {killed,unkilled}/"checkpoint-$at"/optimizer.safetensors || complain "killed: other moments"

# Without the option a rank's sums are those of its micro-batches: the comparisons above can fail.
task=("${glue[@]}" --backend ref) common+=(--virtual-ranks 0)
rm -r one
run one 1 1 96 none none
run two 1 1 step none none
! cmp -s one/model.safetensors two/model.safetensors || complain "micro-batches change no bit without --virtual-ranks"

# A pipeline has the bits of as many virtual ranks as it has replicas, and a run goes on by it or without it.
common+=(--virtual-ranks 2 --batch-size 21)
piped() { # piped RANKS OPTION...: the task's run by a pipeline, in piped, has the bits of `one`
    rm -rf piped
    start "$1" piped "${task[@]}" "${common[@]}" --output-dir piped "${@:2}"
    ended 0
    same_as_one "${*:2}"
}
same_as_one() {
    local file
    cmp <(losses one) <(losses piped) || complain "${task[0]}, $1: other losses"
    cmp {one,piped}/model.safetensors || complain "${task[0]}, $1: other weights"
    for file in one/checkpoint-4/*.safetensors; do
        cmp "$file" "piped/${file#*/}" || complain "${task[0]}, $1: another ${file##*/}"
    done
}
rm -r one
run one 1 1 step none none
piped 2 --pipeline chimera --stages 2 --micro-batch-tokens 200
rm -r piped/checkpoint-4 piped/model.safetensors piped/run.json
run piped 2 1 96 full none
grep -q "resuming from piped/checkpoint-2" piped.0 || complain "the run did not resume"
! grep -q "not bit-exact" piped.0 || complain "from a pipeline: $(grep 'not bit-exact' piped.0)"
same_as_one "from the middle without a pipeline"
# K-FAC: statistics of a step's grains come in its works and in those of the next step
task=("${glue[@]}" --backend ref --kfac-interval 2)
rm -r one
run one 1 1 step none none --kfac-lag 2
piped 4 --pipeline zb-h1 --stages 2 --micro-batch-tokens 200
task=("${pretrain[@]}" --backend ref) # two gradients of the word embedding
rm -r one
run one 1 1 96 none none
piped 2 --pipeline chimera --stages 2
if [ "${CAIRN_TEST_DEEP:-}" = 1 ]; then
    piped 4 --pipeline zb-h1 --stages 2 --micro-batch-tokens 96
    for n in 2 4; do
        for schedule in gpipe 1f1b zb-h1; do piped $((2 * n)) --pipeline $schedule --stages $n --recompute full; done
    done
    piped 4 --pipeline zb-v --stages 4
    piped 2 --pipeline gpipe --stages 1
fi

# what is refused
alone() { expect "$1" "$CAIRN_BINARY" "${glue[@]}" --output-dir refused --max-steps 1 "${@:2}"; }
start 4 refused "${glue[@]}" --output-dir refused --virtual-ranks 6
ended 2
grep -q "they run on 1, 2, 3 or 6 ranks" refused.0 || complain "refused.0 does not name the numbers allowed: $(cat refused.0)"
alone 2 --virtual-ranks 2 --wire bf16
says "--virtual-ranks with --wire bf16"
alone 2 --virtual-ranks 2 --micro-batch-tokens 100
says "less than a grain of"
alone 0 --virtual-ranks 6 --dry-run # any number on one rank
alone 2 --virtual-ranks 2 --pipeline gpipe --stages 1
says "Give --virtual-ranks 1"
finish
