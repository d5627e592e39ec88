#!/usr/bin/env bash
# MLPerf's rules on a tiny model: the reference text to packed shards, runs with different seeds to a target, the folder of
# a submission, and MLPerf's own checker where it is installed.
set -euo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

prepare=$source_dir/tasks/pretrain/mlperf/prepare.sh
export RESULTS_DIR=$work/results

# ---- data ----
expect 0 "$CAIRN_BINARY" wiki --input "$source_dir/tasks/pretrain/sample/sample.xml" --output-dir text
expect 0 "$CAIRN_BINARY" vocab --input text --size 400 --output vocab.txt
mkdir reference
awk -v RS= -v ORS='\n\n' '{ print >("reference/" (NR % 10 == 0 ? "eval.txt" : "part-0000" NR % 2 "-of-00002")) }' text/part-00000.txt
small=(--max-seq-length 32 --predictions 5)
expect 2 "$prepare" --text text --vocab vocab.txt --output-dir data
says "text has no eval.txt"
expect 2 "$prepare" --text reference --vocab vocab.txt --output-dir data --shards 5
says "--shards 5: expected 10 at least"
expect 0 "$prepare" --text reference --vocab vocab.txt --output-dir data --shards 40 --dupe-factor=4 "${small[@]}"
says "eval.txt is not the rules'" "data/train: 252 documents" "data/eval: 28 documents"
shards=$(find data/train -name 'part-*.hdf5' | wc -l)
[ "$shards" -eq 40 ] || complain "$shards shards of 40"
grep -q '"layout": "packed"' data/train/manifest.json || complain "the shards are not packed"

# ---- the settings of each system ----
# shellcheck disable=SC2154 # the settings are the file's
for file in "$source_dir"/tasks/pretrain/mlperf/config_*.sh; do
    name=$(basename -- "$file" .sh) && name=${name#config_}
    # shellcheck source=/dev/null
    read -r size sequences < <(source "$file" && echo "${nodes}x${ranks_per_node}x$sequences_per_rank" $((nodes * ranks_per_node * sequences_per_rank)))
    [ "$name" = "${name%%_*}_$size" ] || complain "$name has $size hosts, ranks and sequences"
    expect 0 "$scripts/run_mlperf.sh" --system "$name" --print-config
    says "\"batch-size\": $sequences," '"target-mlm-accuracy": 0.72' '"eval-samples": "mlperf"' '"eval-count": 10000'
done

# What is no such file is told before it is run.
printf 'touch ran\n' >other.sh
printf 'nodes=1 ranks_per_node=1 sequences_per_rank=1 flags=(\n' >broken.sh
for file in nosuch .. other.sh broken.sh; do
    expect 2 "$scripts/run_mlperf.sh" --system "$file"
    says "--system: " "expected A100_1x8x56"
done
[ ! -e ran ] || complain "a file that is no configuration was run"

# ---- runs ----
cat >model.json <<'END'
{"vocab_size": 400, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64,
 "max_position_embeddings": 32, "type_vocab_size": 2, "hidden_act": "gelu", "initializer_range": 0.02,
 "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
END
cat >toy.sh <<'END'
nodes=1 ranks_per_node=1 sequences_per_rank=16
flags=(--model-config model.json --max-seq-length 32 --predictions 5 --learning-rate 0.02 --max-steps 80 --eval-samples 160 --eval-count 60
    --target-mlm-accuracy 0.02 --mlperf-org "Us & Co" --mlperf-platform toy --mlperf-status research)
END
sed 's/ranks_per_node=1/ranks_per_node=2/; s/rank=16/rank=8/' toy.sh >two.sh
run=("$scripts/run_mlperf.sh" --system toy.sh --data-dir data/train --eval-dir data/eval --experiments 2)
own=$RESULTS_DIR/mlperf/"Us & Co"
expect 2 "$scripts/run_mlperf.sh" --data-dir data/train
says "give --system: " "H100_1x8x96"
expect 2 "$scripts/run_mlperf.sh" --system nosuch
says "config_nosuch.sh is not a readable file"

# Stopped at once, and resumed with the same seed.
touch now
expect 75 "${run[@]}" --persist-file now --mlperf-division open
drawn=$(cat "$RESULTS_DIR/mlperf/runs/toy/0.seed")
rm -f now
expect 0 "${run[@]}" --mlperf-division open
says "run 1 of 2, seed $drawn" "resuming" "run 2 of 2"
log=$own/results/toy/bert/result_1.txt
has_file "$own/results/toy/bert/result_0.txt" "$log" "$own/systems/toy.json" "$own/benchmarks/bert/implementations/cairn/toy.sh"
for field in '"submission_org", "value": "Us & Co"' '"submission_platform", "value": "toy"' '"submission_division", "value": "open"' \
    '"submission_status", "value": "research"' '"cache_clear", "value": false' '"eval_samples", "value": 60,'; do
    grep -qF "\"key\": $field" "$log" || complain "result_1.txt has no $field"
done
grep -q '"key": "run_stop".*"status": "success"' "$log" || complain "result_1.txt ends without success"
grep -qF '"status": "Research, Development, or Internal (RDI)"' "$own/systems/toy.json" || complain "toy.json has another status"
seeds=$(cat "$own"/results/toy/bert/*.txt | sed -n 's/.*"key": "seed", "value": \([0-9]*\).*/\1/p' | sort -u | wc -l)
[ "$seeds" -eq 2 ] || complain "$seeds seeds in 2 runs"
# Evaluated at the interval, and no longer than to the target.
samples=$(sed -n 's/.*"key": "eval_accuracy".*"epoch_num": \([0-9]*\).*/\1/p' "$log")
awk '$1 != 160 * NR { exit 1 }' <<<"$samples" || complain "evaluations at $samples sequences"
sed -n 's/.*"key": "eval_accuracy", "value": \([0-9.e-]*\).*/\1/p' "$log" | sed '$d' | awk '$1 >= 0.02 { exit 1 }' ||
    complain "a run went on after the target"
grep -q "^result_1[[:space:]].*success[[:space:]][0-9.]*[[:space:]]$(tail -n 1 <<<"$samples")[[:space:]]0\.[0-9]*$" \
    "$RESULTS_DIR/mlperf/runs/toy/summary.tsv" || complain "summary.tsv: $(cat "$RESULTS_DIR/mlperf/runs/toy/summary.tsv")"

# What is there stays.
expect 0 "${run[@]}" --mlperf-division open
grep -q 'run 1 of 2' <<<"$output" && complain "a finished run was made again"

# As a job of Slurm: the time left is that of all runs together. Without any the next job goes on.
mkdir bin
printf '#!/bin/sh\ncase $* in *%%L*) echo 05:00:00 ;; *) echo RUNNING ;; esac\n' >bin/squeue
printf '#!/bin/sh\necho "$@" >>%q\n' "$work/requeued" >bin/scontrol
chmod +x bin/squeue bin/scontrol
job=(env PATH="$work/bin:$PATH" SLURM_JOB_ID=1 SLURM_SUBMIT_DIR="$source_dir" RUN_SCRIPT=run_mlperf.sh bash "$scripts/job.slurm")
expect 2 "${job[@]/#RUN_SCRIPT=*/RUN_SCRIPT=run_mlperf}"
says "RUN_SCRIPT: hpcai_scripts/run_mlperf is not a script"
flags=(--system "$work/toy.sh" --data-dir "$work/data/train" --eval-dir "$work/data/eval" --model-config "$work/model.json"
    --experiments 2 --seed 7 --mlperf-platform queued --mlperf-division open)
(cat toy.sh && echo SECONDS=18000) >late.sh # as if earlier runs had taken the job's time
expect 75 "${job[@]}" "${flags[@]}" --system "$work/late.sh"
says "this job has 18000 s left" "CAIRN_MAX_TIME=17940s ended after 0 of 2 runs" "back into the queue"
holds requeued "requeue 1" || complain "the job was not put back"
expect 0 "${job[@]}" "${flags[@]}"
says "run 2 of 2, seed 8"

# Two ranks by the launcher; given seeds; a target that is missed.
run[2]=two.sh
expect 1 "${run[@]}" --seed 5 --target-mlm-accuracy 0.99 --max-steps 12 --mlperf-platform missed
says "seed 5" "seed 6" "2 of 2 runs did not reach the target" "aborted"

# ---- MLPerf's own checkers ----
if python3 -c 'import mlperf_logging.compliance_checker' 2>/dev/null; then
    grep -q "result_0.txt: MLPerf's checker 5.0.0 accepts it" <<<"$output" && complain "a run that missed its target was accepted"
    export RESULTS_DIR=$work/checked
    run[2]=toy.sh experiments=$(quick_or_deep 2 10)
    expect 0 "${run[@]}" --mlperf-division open --experiments "$experiments"
    says "result_$((experiments - 1)).txt: MLPerf's checker 5.0.0 accepts it"
    # The closed division's rules, too: they object to the accuracy of a tiny model, and to nothing else.
    sed 's/"value": "open"/"value": "closed"/' "$RESULTS_DIR/mlperf/Us & Co/results/toy/bert/result_0.txt" >closed.txt
    expect 1 python3 -m mlperf_logging.compliance_checker --usage training --ruleset 5.0.0 --log_output closed.log closed.txt
    says "eval_accuracy"
    sed -i 's/\("key": "eval_accuracy", "value": \)[0-9.e-]*/\10.7203/' closed.txt
    expect 0 python3 -m mlperf_logging.compliance_checker --usage training --ruleset 5.0.0 --log_output closed.log closed.txt
    if [ "$experiments" -eq 10 ] && python3 -c 'import mlperf_logging.package_checker' 2>/dev/null; then
        expect 0 python3 -m mlperf_logging.package_checker "$RESULTS_DIR/mlperf/Us & Co" training 5.0.0 --log_output package.log
        says "PACKAGE CHECKER FOUND NO ERRORS"
    fi
else
    echo "skipped: MLPerf's checkers, which are not installed (pip install mlperf-logging)"
fi
finish
