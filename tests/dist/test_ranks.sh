#!/usr/bin/env bash
# Several ranks train as one: the same losses to rounding, bit-equal weights over ranks, the same evaluation; uneven
# shares, accumulation, bf16 between ranks, resuming with other numbers of ranks, and a signal to one of them.
set -euo pipefail
# shellcheck source=tests/dist/ranks.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/ranks.sh"

make_tiny_bert tiny
small_data 90
glue=(glue --model-config tiny/config.json --vocab tiny/vocab.txt --data-dir data --do-train --backend ref
    --bucket-size 16KiB)

# run N LOG OPTION...: 4 steps of 27 sequences, which are shared unevenly; the epoch ends with a short batch
run() {
    start "$1" "$2" "${glue[@]}" --output-dir "$2" --batch-size 27 --max-steps 4 "${@:3}"
    ended 0
}

for n in 1 2 3; do
    run "$n" "out$n" --do-eval
    [ "$n" -eq 1 ] && continue
    near out1 "out$n"
    equal_ranks "out$n" "$n"
    cmp out1/eval_results.txt "out$n/eval_results.txt" >/dev/null ||
        awk '{ split($0, x, " = "); getline y < "out1/eval_results.txt"; split(y, z, " = ")
               if ((x[2] - z[2]) ^ 2 > 1e-6) bad = 1 } END { exit bad }' "out$n/eval_results.txt" ||
        complain "$n ranks: other results"
    [ -s "out$n.1" ] || complain "rank 1 printed nothing with --verbose"
    grep -q 'rank 1 on .*accuracy' "out$n.1" || complain 'the lines of rank 1 have no prefix'
done

# a shared evaluation has the results of one rank, to the last digit
for n in 1 3; do
    start "$n" "eval$n" glue --model out3 --data-dir data --do-eval --do-predict --backend ref --output-dir "eval$n"
    ended 0
done
for file in eval1/*; do cmp "$file" "eval3/${file##*/}" || complain "3 ranks have another evaluation"; done
has_file eval3/eval_results.txt

# fewer sequences than ranks; several micro-batches per step; bf16 between ranks; buckets of all sizes
for n in 1 4; do
    start "$n" "few$n" "${glue[@]}" --output-dir "few$n" --batch-size 2 --max-steps 3
    ended 0
done
near few1 few4
equal_ranks few4 4
run 2 split --micro-batch-tokens 128 --wire bf16
near out1 split
equal_ranks split 2
run 2 large --bucket-size 1GiB
cmp out2/model.safetensors large/model.safetensors || complain "--bucket-size changed the sums of two ranks"

# One step on 1 rank, one on 3, the others on 2: the losses of one rank. --max-time of rank 0 stops all; each start makes
# a step.
for n in 1 3; do
    start "$n" on "${glue[@]}" --output-dir moved --batch-size 27 --max-steps 4 --max-time 1s
    ended 75
    grep -q "max-time is nearly used up" on.0 || complain "rank 0 does not report --max-time"
done
run 2 moved
near out1 moved
equal_ranks moved 2

# SIGTERM to one rank: all save and end with 75, and the same command resumes, bit-exact
for who in 0 1; do
    slowly
    start 2 stopped "${glue[@]}" --output-dir "stop$who" --batch-size 27 --max-steps 100000 --schedule constant --warmup 0
    wait_until "${hang_limit:-600}" reached "stop$who" 3 || complain "stop$who does not get to its third step"
    kill -TERM -- "$(pgrep -P "${ranks[who]}")"
    ended 75
    quickly
    at=$(losses "stop$who" | wc -l)
    grep -q "SIGTERM at step $at of" stopped.0 || complain "rank 0 does not say where it stopped"
done
start 2 whole "${glue[@]}" --output-dir whole --batch-size 27 --max-steps $((at + 2)) --schedule constant --warmup 0
ended 0
start 2 gone_on "${glue[@]}" --output-dir "stop$who" --batch-size 27 --max-steps $((at + 2)) --schedule constant --warmup 0 --override
ended 0
cmp whole/model.safetensors "stop$who/model.safetensors" || complain "a stop changed bits"

# --persist-file stops all ranks and is removed; one with contents does neither
slowly
start 2 file "${glue[@]}" --output-dir file --batch-size 27 --max-steps 100000 --persist-file error.txt
wait_until "${hang_limit:-600}" reached file 3 || complain "file does not get to its third step"
echo kept >error.txt
wait_until "${hang_limit:-600}" holds file.0 "--persist-file error.txt: expected nothing, or the empty file" || complain "a file with contents is not refused"
[ "$(cat error.txt)" = kept ] || complain "--persist-file cost a file of the user's"
: >error.txt
ended 75
grep -q "error.txt" file.0 || complain "rank 0 does not name the file that stopped it"
[ ! -e error.txt ] || complain "the file that stopped the run was not removed"

# the option that differs is named
meet 2
for r in 0 1; do one "$r" 2 differ "${glue[@]}" --output-dir differ --seed "$((r + 1))"; done
ended 2
grep -q -- "--seed" differ.0 || complain "the seed that differs is not named"

finish
