#!/usr/bin/env bash
# cairn sweep plans all combinations, makes the missing runs, continues after a stop, and prints one table; --seeds,
# --stop-after and array jobs.
set -euo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

make_tiny_bert bert
mkdir data
for split in train dev_matched; do head -n 101 "$sample/$split.tsv" >"data/$split.tsv"; done
run=(glue --task MNLI --data-dir "$work/data" --model-config bert/config.json --vocab bert/vocab.txt --do-train --do-eval
    --eval-splits dev_matched --max-seq-length 32 --threads 1 --snapshot-dir none --max-steps 3)
sweep() { expect "$1" "$CAIRN_BINARY" sweep --output-dir out "${@:2}"; }
# column NAME ROW: of out/means.csv
column() {
    awk -F, -v name="$1" -v row="$2" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) at = i } NR == row + 1 { print $at }' \
        out/means.csv | tr -d '\r'
}

# Six runs, of which two do not fit; the same command makes none again.
vary=(--vary "batch-size=4,200000" --vary "seed=1-3")
sweep 0 "${vary[@]}" -- "${run[@]}" --micro-batch-tokens step --padded --memory-budget 300MiB
says "plan of batch-size=4_seed=1: fits" "6 runs: 3 to make, 0 finished before, 3 do not fit" "200000      does not fit" " ± "
has_file out/{report.html,sweep.csv,means.csv,throughput.svg,memory.svg,seeds.svg} out/batch-size=4_seed=3/run.json
[ ! -e "out/batch-size=200000_seed=1" ] || complain "a run that does not fit was begun"
[ "$(wc -l <out/sweep.csv)" -eq 7 ] || complain "sweep.csv: $(cat out/sweep.csv)"
grep -q '^batch-size=200000_seed=2,200000,2,does not fit,.*GiB\|MiB' out/sweep.csv || complain "no reason: $(cat out/sweep.csv)"
# Mean and deviation are those of the runs' own figures.
figures() { for i in 1 2 3; do json_number "out/batch-size=4_seed=$i/run.json" "dev_matched accuracy"; done; }
want=$(figures | awk '{ n++; s += $1; q += $1 * $1 } END { m = s / n; printf "%.9f %.9f", m, sqrt((q - n * m * m) / (n - 1)) }')
got=$(printf '%.9f %.9f' "$(column 'dev_matched accuracy' 1)" "$(column 'deviation of dev_matched accuracy' 1)")
awk -v a="$want" -v b="$got" 'BEGIN { split(a, x); split(b, y); exit !(x[1] == y[1] && (x[2] - y[2]) ^ 2 < 1e-12) }' ||
    complain "mean and deviation are $got, expected $want"
times=$(stat -c %Y.%i out/batch-size=4_seed=*/run.json)
sweep 0 "${vary[@]}" -- "${run[@]}" --micro-batch-tokens step --padded --memory-budget 300MiB
says "0 to make, 3 finished before"
[ "$times" = "$(stat -c %Y.%i out/batch-size=4_seed=*/run.json)" ] || complain "finished runs were made again"
sweep 2 "${vary[@]}" -- "${run[@]}" --learning-rate 1
says "finished run with other flags" "--learning-rate was 2e-05, is 1"
# Runs of a version whose default was another count as made. One of them, finished or only begun, decides for all.
sed -i 's/"bias-correction": true/"bias-correction": false/' out/batch-size=4_seed=*/run.json
rm -r out/batch-size=4_seed=[23]
former() { # former MADE FINISHED
    sweep 0 "${vary[@]}" -- "${run[@]}" --micro-batch-tokens step --padded --memory-budget 300MiB
    says "$1 to make, $2 finished before"
    [ "$(grep -c 'has --bias-correction=false, .*all runs of the sweep keep it' <<<"$output")" -eq 1 ] ||
        complain "not said once: $output"
    [ "$(grep -l '"bias-correction": false' out/batch-size=4_seed=*/run.json | wc -l)" -eq 3 ] ||
        complain "runs with two defaults in one sweep: $output"
}
former 2 1
rm -r out/batch-size=4_seed=[13] out/batch-size=4_seed=2/run.json
former 3 0
former 0 3
sweep 2 "${vary[@]}" -- "${run[@]}" --bias-correction
says "--bias-correction was false, is true"

# A signal stops the run that is made, with its state; the same command resumes. Two at a time.
rm -rf out
"$CAIRN_BINARY" sweep --output-dir out --jobs 2 --vary seed=1-3 -- "${run[@]}" --max-steps 200000 >log 2>&1 &
pid=$!
wait_until "$hang_limit" reached out/seed=1 2 || complain "no run began: $(cat log)"
wait_until "$hang_limit" reached out/seed=2 2 || complain "the second run did not begin beside the first: $(cat log)"
CAIRN_TEST_LOCK_WAIT=0.1 sweep 1 --vary seed=1-3 -- "${run[@]}" --max-steps 200000 # beside the first
says "is in use by process $pid"
kill -TERM "$pid"
code=0
wait "$pid" || code=$?
[ "$code" -eq 75 ] || complain "a stopped sweep ended with $code: $(cat log)"
grep -q 'the same command resumes the sweep' log || complain "the message of a stop: $(cat log)"
compgen -G 'out/seed=1/checkpoint-*' >/dev/null || complain "the stopped run has no checkpoint"
[ ! -e out/seed=3 ] || complain "a run began after the signal"
sweep 0 --vary seed=1-3 --stop-after 0.05s -- "${run[@]}" --max-steps 200000
says "3 done"
grep -q 'resuming from' out/logs/seed=1.log || complain "the run did not resume"
grep -q -- '--stop-after: training ends at step' out/logs/seed=3.log || complain "--stop-after did not end the training"
steps=$(json_number out/seed=3/run.json steps)
[ "$steps" -lt 200000 ] || complain "--stop-after 0.05s: $steps steps"
has_file out/seed=3/eval_results.json
sweep 0 --vary seed=1-3 --stop-after 0.05s -- "${run[@]}" --max-steps 200000
says "0 to make, 3 finished before"

# A run that fails leaves the others alone; ranks; one run of the grid, and the commands of arrays.
rm -rf out
mkdir -p out/learning-rate=2/metrics.jsonl
sweep 1 --vary learning-rate=1e-5,2 -- "${run[@]}"
says "1 of 2 runs failed" "1 done" "failed"
expect 0 "$CAIRN_BINARY" sweep --output-dir one --index 2 --vary seed=1-3 -- "${run[@]}"
has_file one/seed=2/run.json
[ ! -e one/seed=1 ] || complain "--index 2 made the first run"
# Its exit code is that of the run: a job file resumes after damaged memory.
CAIRN_TEST_FLIP="0 2 v 40 7" expect 78 "$CAIRN_BINARY" sweep --output-dir one --index 1 --vary seed=1-3 -- "${run[@]}" --audit 100%
says "error: seed=1: step 2: the memory of rank 0"
# The printed command submits the runs from any folder, and words of any kind reach them as they are. This scheduler makes
# the jobs of an array one after the other, each from a copy of the job file and in another folder.
mkdir bin
cat >bin/qsub <<'END'
#!/usr/bin/env bash
set -eu
while [[ $1 == -* ]]; do
    case $1 in
    --array=*) array=${1#--array=} && shift ;;
    -J | -t) array=$2 && shift 2 ;;
    -l) shift 2 ;;
    -pe) shift 3 ;;
    *) shift ;;
    esac
done
cp "$1" "$0.job"
export SLURM_SUBMIT_DIR=$PWD SLURM_JOB_ID=1 PBS_O_WORKDIR=$PWD SGE_O_WORKDIR=$PWD
case $1 in *.slurm) name=SLURM_ARRAY_TASK_ID ;; *.pbs) name=PBS_ARRAY_INDEX ;; *) name=SGE_TASK_ID ;; esac
shift
cd /
for index in $(seq "${array%-*}" "${array#*-}"); do env "$name=$index" bash "$0.job" "$@"; done
END
printf '#!/bin/sh\ncase $* in *%%L*) echo 1:00:00 ;; *) echo RUNNING ;; esac\n' >bin/squeue
cp bin/qsub bin/sbatch
chmod +x bin/*
odd="it's a \"q\" \$HOME"
for scheduler in slurm pbs sge; do
    expect 0 "$CAIRN_BINARY" sweep --output-dir "$odd $scheduler" "--$scheduler" --vary seed=1-2 -- "${run[@]}"
    says "RUN_SCRIPT=sweep.sh " "1-2 " "hpcai_scripts/job.$scheduler"
    [ ! -e "$odd $scheduler/seed=1" ] || complain "--$scheduler made a run"
    expect 0 env -u CAIRN_BINARY -C / "PATH=$work/bin:$PATH" bash -c "$(cat "$work/.stdout")"
    has_file "$odd $scheduler"/seed={1,2}/run.json
done

# An array asks for the ranks and threads of its largest run, and names the memory as `cairn plan` does.
array() { expect 0 "$CAIRN_BINARY" sweep --output-dir asked "$@" -- "${launch[@]}" "${run[@]}"; }
launch=()
array --pbs --vary threads=1,3
says "qsub -J 1-2 -l select=1:ncpus=3:mpiprocs=1:mem=2gb -l place=scatter hpcai_scripts/job.pbs"
array --slurm --vary threads=0,3
says "sbatch --array=1-2 --nodes=1 --ntasks-per-node=1 --cpus-per-task=$(getconf _NPROCESSORS_ONLN) --mem=2G hpcai_scripts/job.slurm"
expect 0 "$CAIRN_BINARY" plan --model-config bert/config.json --ranks 2 --ranks-per-host 2 --threads 3 --pbs
asked=$(sed -n 's/^#PBS \(-l select=1:ncpus=6:mpiprocs=2:mem=2gb\)$/\1/p' .stdout)
if [ -e "$(dirname "$CAIRN_BINARY")/cairn_gloo.so" ]; then
    launch=(launch --ranks 1 --)
    array --pbs --vary ranks=2 --vary threads=3
    says "-l select" " ${asked:-no line of plan} "
    array --sge --vary ranks=2,1
    says "qsub -t 1-2 -pe mpi 2 -l mem_free=1G hpcai_scripts/job.sge"
fi

# Flags of the launcher vary, too.
if [ -e "$(dirname "$CAIRN_BINARY")/cairn_gloo.so" ]; then
    expect 0 "$CAIRN_BINARY" sweep --output-dir ranks --vary ranks=1,2 --vary seed=1,2 -- launch -- "${run[@]}"
    says "2 done"
    [ "$(json_number ranks/ranks=2_seed=1/run.json ranks)" = 2 ] || complain "--vary ranks=2 made $(json_number ranks/ranks=2_seed=1/run.json ranks) ranks"
fi

# --seeds is the same sweep.
expect 0 "$CAIRN_BINARY" "${run[@]}" --seeds 4,5 --output-dir seeds
says "2 done" " ± "
has_file seeds/seed=4/run.json seeds/seed=5/run.json
expect 2 "$CAIRN_BINARY" "${run[@]}" --seeds 5-1 --output-dir seeds
says "error: --seeds 5-1: "
# A varied flag takes the place of the command's own, which is said.
expect 0 "$CAIRN_BINARY" "${run[@]}" --seeds 4,5 --seed 3 --output-dir seeds
says "warning: --seed of the command is without effect: the sweep varies it" "0 to make, 2 finished before"
expect 0 "$CAIRN_BINARY" sweep --output-dir said --dry-run --vary batch-size=8,16 --vary ranks=1,2 -- launch --ranks 2 -- \
    "${run[@]}" --per_device_train_batch_size=4
says "--batch-size of the command is without effect" "--ranks of the command is without effect" "to do"
[ ! -e said ] || complain "--dry-run wrote $(find said)"
mkdir tmp
expect 0 env TMPDIR="$work/tmp" "$CAIRN_BINARY" sweep --output-dir said --dry-run --vary batch-size=8,16 -- "${run[@]}"
expect 0 env TMPDIR="$work/tmp" "$CAIRN_BINARY" sweep --output-dir said --dry-run --index 2 --vary batch-size=8,16 -- "${run[@]}"
says "plan of batch-size=16: fits"
[ ! -e said ] && [ -z "$(ls tmp)" ] || complain "--dry-run left $(find tmp said)"

# Wrong use is found before anything is made.
wrong() { # wrong TEXT FLAG...
    expect 2 "$CAIRN_BINARY" sweep --output-dir none "${@:2}"
    says "$1"
    [ ! -e none ] || complain "a refused sweep left its folder: ${*:2}"
}
wrong "nothing to vary" -- "${run[@]}"
wrong "give the command behind" --vary seed=1,2
wrong "expected FLAG=A,B" --vary seed -- "${run[@]}"
wrong "the smaller first" --vary seed=5-1 -- "${run[@]}"
wrong "has 3 twice" --vary seed=1-3,3 -- "${run[@]}"
wrong "has a b twice" --vary seed=1 --vary "data-dir=a b,a b" -- "${run[@]}" # a blank belongs to the value
wrong "given twice" --vary seed=1 --vary seed=2 -- "${run[@]}"
wrong "a folder of its own" --vary output-dir=a,b -- "${run[@]}"
wrong "unknown flag --no-such" --vary no-such=1,2 -- "${run[@]}"
wrong "the run batch-size=0" --vary batch-size=8,0 -- "${run[@]}"
wrong "runs of glue, squad, embed, pretrain and adapt" --vary batch-size=8,16 -- plan --model-config bert-tiny
wrong "the command has --output-dir mine" --vary seed=1-3 -- "${run[@]}" --output-dir mine
wrong "leave --jobs out" --slurm --jobs 2 --vary seed=1-3 -- "${run[@]}"
wrong "--index 4: the sweep has 3 runs" --index 4 --vary seed=1-3 -- "${run[@]}"
finish
