#!/usr/bin/env bash
# A real Slurm: srun without a launcher, and hpcai_scripts/job.slurm as a user submits it, on two hosts: to its end,
# with a lost rank, with the signal before the limit and a requeue, and cancelled; GLUE and pretraining. No time-out of
# Cairn passes.
set -uo pipefail
# shellcheck source=tests/dist/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=tests/dist/hosts.sh
source "$source_dir/tests/dist/hosts.sh"
# shellcheck source=tests/schedulers/slurm.sh
source "$source_dir/tests/schedulers/slurm.sh"
# shellcheck source=tests/schedulers/torque.sh
source "$source_dir/tests/schedulers/torque.sh"
slurm_or_skip
if [ ! -e "$(dirname -- "$CAIRN_BINARY")/cairn_gloo.so" ]; then echo "skipped: needs the gloo module" && exit 77; fi
torque_fetch || [ -n "${CAIRN_TEST_HOSTS:-}" ] || echo "qsub is left out: slurm-wlm-torque cannot be fetched"
within_hosts 2 "$source_dir/tests/dist/test_slurm.sh"
slurm_start 2 >"$work/slurm.out" 2>&1 || { cat "$work/slurm.out" && complain "Slurm did not start" && finish; }

nap_s=0.2
export CAIRN_TEST_RETRY=1h
slowly # what trains until something happens leaves the processor to the others
make_tiny_bert bert
small_data 40
small=(--model-config "$work/bert/config.json" --vocab "$work/bert/vocab.txt" --data-dir "$work/data" --batch-size 4
    --max-seq-length 32 "${patient[@]}")
endless=(--max-steps 1000000 --warmup 0 --schedule constant)
# No rank, agent or launcher is left on a host.
# shellcheck disable=SC2317 # by wait_until
quiet() { ! pgrep -f "$CAIRN_BINARY|^cairn " >/dev/null; }
none_left() { wait_until "$hang_limit" quiet || complain "$1: left behind: $(pgrep -af "$CAIRN_BINARY|^cairn ")"; }
submit() { (cd -- "$source_dir" && RESULTS_DIR=$work/results sbatch --parsable -o "$work/%j.out" "$@"); }
steps_of() { wc -l 2>/dev/null <"$work/results/MNLI/metrics.jsonl" || echo 0; }
# shellcheck disable=SC2317 # by wait_until
trained() { [ "$(steps_of)" -gt "$1" ]; }

# srun alone: ranks meet by Slurm's variables.
expect 0 timeout "$hang_limit" srun -N2 "$CAIRN_BINARY" glue --do-train "${small[@]}" --max-steps 6 --output-dir "$work/by-srun"
[ "$(losses by-srun | wc -l)" -eq 6 ] || complain "srun: $(losses by-srun | wc -l) steps"
[ "$(grep -c 'trained 6 steps' <<<"$output")" -eq 1 ] || complain "srun: the ranks did not train together: $output"

# The unchanged job.
job=$(submit hpcai_scripts/job.slurm "${small[@]}" --max-steps 6)
slurm_wait "$job"
has_file results/MNLI/model.safetensors results/MNLI/eval_results.json
[ "$(steps_of)" -eq 6 ] || { complain "job.slurm: $(steps_of) steps" && cat "$job.out"; }
[[ $(scontrol show job "$job") == *JobState=COMPLETED* ]] || complain "job.slurm did not complete: $(cat "$job.out")"
none_left "the finished job"
rm -rf results

# A rank is killed: the launcher restarts all, within the job.
job=$(submit hpcai_scripts/job.slurm "${small[@]}" "${endless[@]}" --save-steps 5)
wait_until "$hang_limit" trained 6 || { complain "the run did not begin: $(cat "$job.out")" && finish; }
pgrep -f "^cairn glue" | while read -r pid; do
    grep -qzx RANK=1 "/proc/$pid/environ" && kill -9 "$pid"
done
wait_until "$hang_limit" holds "$job.out" "was killed by SIGKILL; starting again on 2 hosts (1 of at most 3)" ||
    complain "the fault was not reported: $(cat "$job.out")"
before=$(steps_of)
wait_until "$hang_limit" trained $((before + 5)) || complain "it did not resume after the fault: $(cat "$job.out")"
# Suspended: all processes stop, then continue, and no rank is reported as lost.
quickly # a slow rank would sleep for ten times as long as it was stopped
scontrol suspend "$job" || complain "it cannot be suspended"
# shellcheck disable=SC2317 # by wait_until
all_stopped() {
    local pid n=0
    for pid in $(pgrep -f "^cairn glue"); do stopped "$pid" && n=$((n + 1)) || return 1; done
    [ "$n" -eq 2 ]
}
wait_until "$hang_limit" all_stopped || complain "a rank does not stop"
before=$(steps_of)
scontrol resume "$job"
wait_until "$hang_limit" trained $((before + 5)) || complain "it did not continue: $(cat "$job.out")"
slowly
! holds "$job.out" "(2 of at most 3)" || complain "a suspended job was restarted: $(cat "$job.out")"
# Cancelled by the user: a signal to every process, then the end.
scancel "$job"
slurm_wait "$job"
none_left "the cancelled job"
rm -rf results

# The signal before the limit: a checkpoint, a requeue, and the run resumes. Slurm checks limits every half minute and
# signals up to a minute early, so that signal may come before the run begins or long after; here the same signal comes
# by hand, to the batch shell alone.
if [ -n "${CAIRN_TEST_DEEP:-}" ]; then
    job=$(CAIRN_MAX_TIME=10h submit --time=2 --signal=B:TERM@60 hpcai_scripts/job.slurm "${small[@]}" "${endless[@]}")
else
    job=$(CAIRN_MAX_TIME=10h submit hpcai_scripts/job.slurm "${small[@]}" "${endless[@]}")
    wait_until "$hang_limit" trained 3 || { complain "the run did not begin: $(cat "$job.out")" && finish; }
    scancel --batch --signal=TERM "$job"
fi
wait_until "$hang_limit" holds "$job.out" "back into the queue" || { complain "no signal, or no requeue: $(cat "$job.out")" && finish; }
grep -q "SIGTERM" "$job.out" || complain "another cause stopped it: $(cat "$job.out")"
before=$(steps_of)
# Slurm lets a job that was put back wait for two minutes, and may say so some time after the job is in the queue again:
# not here, and its next signal comes late. It starts in another second than the one in which it ended: Slurm tells the two
# starts by their seconds, and takes the second for the first, which may not run again.
# shellcheck disable=SC2317 # by wait_until
restarted() {
    local shown eligible
    shown=$(scontrol show job "$job")
    case $shown in
    *JobState=RUNNING*Restarts=[1-9]*) return ;;
    *JobState=PENDING*)
        eligible=${shown##*EligibleTime=}
        [ "$(date -d "${eligible%%[[:space:]]*}" +%s)" -le $(($(date +%s) + 5)) ] ||
            scontrol update JobId="$job" StartTime=now+2 TimeLimit=60
        ;;
    *JobState=FAILED*) complain "the job did not start again: $shown" && finish ;;
    esac
    return 1
}
wait_until "$hang_limit" restarted || complain "the job does not start again: $(scontrol show job "$job")"
wait_until "$hang_limit" trained $((before + 5)) || complain "it did not resume from its checkpoint: $(cat "$job.out")"
scancel "$job"
slurm_wait "$job"
none_left "the job that was put back"
rm -rf results

# Pretraining, as the job file's own example calls it.
if (make_sample_text) >/dev/null 2>&1; then
    make_tiny_config tiny.json
    expect 0 "$CAIRN_BINARY" shards --input text --vocab vocab.txt --output-dir shards --max-seq-length 64 --dupe-factor 1 --eval-fraction 0.2
    job=$(RUN_SCRIPT=run_pretraining_multinode.sh submit hpcai_scripts/job.slurm --phase 1 --data-dir "$work/shards" \
        --eval-dir "$work/shards/eval" --model-config "$work/tiny.json" --vocab "$work/vocab.txt" --max-seq-length 64 \
        --batch-size 8 --max-steps 4 "${patient[@]}")
    slurm_wait "$job"
    out=results/pretrain-phase1
    has_file "$out/model.safetensors" "$out/eval_results.json"
    [ "$(losses "$out" | wc -l)" -eq 4 ] || complain "pretraining: $(losses "$out" | wc -l) steps: $(cat "$job.out")"
    holds "$job.out" "2 ranks on 2 hosts" || complain "pretraining: not on both hosts: $(cat "$job.out")"
    [[ $(scontrol show job "$job") == *JobState=COMPLETED* ]] || complain "pretraining did not complete: $(cat "$job.out")"
    none_left "the pretraining job"
    rm -rf results
else
    echo "pretraining is left out: built without expat or HDF5"
fi

# PBS's qsub, as a user of PBS calls it; what it asks for is read from the script's own lines.
if [ -e "$torque/done" ]; then
    torque_use
    ln -sfn "$work" /run/netns/work # RUN_FLAGS are words without spaces
    flags="--model-config /run/netns/work/bert/config.json --vocab /run/netns/work/bert/vocab.txt --data-dir /run/netns/work/data"
    (cd -- "$source_dir" && RESULTS_DIR=$work/results RUN_FLAGS="$flags --max-steps 6 ${patient[*]}" \
        qsub -o /run/netns/pbs.out -e /run/netns/pbs.out hpcai_scripts/job.pbs) >.id 2>&1 || complain "qsub: $(cat .id)"
    slurm_wait "$(tail -n 1 .id)"
    [ "$(steps_of)" -eq 6 ] || complain "job.pbs: $(steps_of) steps: $(cat .id /run/netns/pbs.out)"
    none_left "the PBS job"
fi
finish
