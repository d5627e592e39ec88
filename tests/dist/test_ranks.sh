#!/usr/bin/env bash
# Several ranks train as one: the same losses to rounding, bit-equal weights over ranks, the same evaluation; uneven
# shares, accumulation, bf16 between ranks, resuming with other numbers of ranks, and a signal to one of them.
set -euo pipefail
# shellcheck source=tests/dist/ranks.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/ranks.sh"

make_tiny_bert tiny
glue=(glue --model-config tiny/config.json --vocab tiny/vocab.txt --data-dir "$sample" --do-train --do-eval
    --backend ref --bucket-size 16KiB)

# rank counts: 1, 2, 3, 4; 27 sequences per step are shared unevenly, and the epoch ends with a short batch
for n in 1 2 3 4; do
    start "$n" "log$n" "${glue[@]}" --output-dir "out$n" --batch-size 27 --max-steps 7
    ended 0
    [ "$n" -eq 1 ] && continue
    near out1 "out$n"
    equal_ranks "log$n" "$n"
    cmp out1/eval_results.txt "out$n/eval_results.txt" >/dev/null ||
        awk '{ split($0, x, " = "); getline y < "out1/eval_results.txt"; split(y, z, " = ")
               if ((x[2] - z[2]) ^ 2 > 1e-6) bad = 1 } END { exit bad }' "out$n/eval_results.txt" ||
        complain "$n ranks: other results"
    [ -s "log$n.1" ] || complain "rank 1 printed nothing with --verbose"
    grep -q 'rank 1 on .*accuracy' "log$n.1" || complain 'the lines of rank 1 have no prefix'
done

# once more: the same bits
start 3 again "${glue[@]}" --output-dir out3again --batch-size 27 --max-steps 7
ended 0
cmp out3/model.safetensors out3again/model.safetensors || complain "the same 3 ranks, other weights"

# a shared evaluation has the results of one rank, to the last digit
start 1 one "${glue[0]}" --model out3 --data-dir "$sample" --do-eval --do-predict --backend ref --output-dir eval1
ended 0
start 3 three "${glue[0]}" --model out3 --data-dir "$sample" --do-eval --do-predict --backend ref --output-dir eval3
ended 0
for file in eval1/*; do cmp "$file" "eval3/${file##*/}" || complain "3 ranks have another evaluation"; done
has_file eval3/eval_results.txt

# fewer sequences than ranks; several micro-batches per step; bf16 between ranks; buckets of all sizes
start 1 few1 "${glue[@]}" --output-dir few1 --batch-size 2 --max-steps 5
ended 0
start 4 few4 "${glue[@]}" --output-dir few4 --batch-size 2 --max-steps 5
ended 0
near few1 few4
equal_ranks few4 4
start 2 split "${glue[@]}" --output-dir split --batch-size 27 --max-steps 7 --micro-batch-tokens 128
ended 0
near out1 split
equal_ranks split 2
start 2 large "${glue[@]/16KiB/1GiB}" --output-dir large --batch-size 27 --max-steps 7
ended 0
cmp out2/model.safetensors large/model.safetensors || complain "--bucket-size changed the sums of two ranks"
start 3 half "${glue[@]}" --output-dir half --batch-size 27 --max-steps 7 --wire bf16
ended 0
near out1 half
equal_ranks half 3

# 2 steps on 1 rank, 2 on 2, 2 on 4, 1 on 1: the losses of one rank
steps=0
for n in 1 2 4 1; do
    steps=$((steps + 2))
    start "$n" "on$n" "${glue[@]}" --output-dir moved --batch-size 27 --max-steps 7 --max-time 1s --save-steps 1
    for pid in "${ranks[@]}"; do wait "$pid" || true; done
done
start 2 on "${glue[@]}" --output-dir moved --batch-size 27 --max-steps 7
ended 0
near out1 moved
equal_ranks on 2

# SIGTERM to one rank: all save and end with 75, and the same command resumes, bit-exact
for who in 0 2; do
    start 3 stopped "${glue[@]}" --output-dir "stop$who" --batch-size 27 --max-steps 100000 --schedule constant --warmup 0
    wait_until 60 reached "stop$who" 3 || complain "stop$who does not get to its third step"
    kill -TERM -- "$(pgrep -P "${ranks[who]}")"
    ended 75
    at=$(losses "stop$who" | wc -l)
    grep -q "SIGTERM at step $at of" stopped.0 || complain "rank 0 does not say where it stopped"
done
start 3 whole "${glue[@]}" --output-dir whole --batch-size 27 --max-steps $((at + 2)) --schedule constant --warmup 0
ended 0
start 3 gone_on "${glue[@]}" --output-dir "stop$who" --batch-size 27 --max-steps $((at + 2)) --schedule constant --warmup 0 --override
ended 0
cmp whole/model.safetensors "stop$who/model.safetensors" || complain "a stop changed bits"

# --persist-file stops all ranks and is removed; --max-time of rank 0 stops all, too
start 2 file "${glue[@]}" --output-dir file --batch-size 27 --max-steps 100000 --persist-file error.txt
wait_until 60 reached file 3 || complain "file does not get to its third step"
touch error.txt
ended 75
grep -q "error.txt" file.0 || complain "rank 0 does not name the file that stopped it"
[ ! -e error.txt ] || complain "the file that stopped the run was not removed"
start 2 time "${glue[@]}" --output-dir time --batch-size 27 --max-steps 100000 --max-time 3s
ended 75
grep -q "max-time is nearly used up" time.0 || complain "rank 0 does not report --max-time"

# the option that differs is named
meet
for r in 0 1; do one "$r" 2 differ "${glue[@]}" --output-dir differ --seed "$((r + 1))"; done
ended 2
grep -q -- "--seed" differ.0 || complain "the seed that differs is not named"

finish
