#!/usr/bin/env bash
# A real Grid Engine: hpcai_scripts/job.sge as a user submits it, on two hosts: to its end, by the execution daemons
# instead of ssh, past its time limit (exit code 99, then resumed), and deleted with -notify.
set -uo pipefail
# shellcheck source=tests/dist/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=tests/dist/hosts.sh
source "$source_dir/tests/dist/hosts.sh"
# shellcheck source=tests/schedulers/grid_engine.sh
source "$source_dir/tests/schedulers/grid_engine.sh"
grid_engine_or_skip
if [ ! -e "$(dirname -- "$CAIRN_BINARY")/cairn_gloo.so" ]; then echo "skipped: needs the gloo module" && exit 77; fi
within_hosts 2 "$source_dir/tests/dist/test_grid_engine.sh"
grid_engine_start 2 >"$work/ge.out" 2>&1 ||
    { complain "Grid Engine did not start: $(cat "$work/ge.out" /run/netns/ge/log/{init,qconf,qmaster})" && finish; }

nap_s=0.2
slowly # what trains until something happens leaves the processor to the others
make_tiny_bert bert
small_data 40
export RESULTS_DIR=$work/results # -V passes the environment on, with CAIRN_SSH and CAIRN_BINARY
small=(--model-config "$work/bert/config.json" --vocab "$work/bert/vocab.txt" --data-dir "$work/data" --batch-size 4
    --max-seq-length 32 "${patient[@]}")
endless=(--max-steps 1000000 --warmup 0 --schedule constant)
submit() { (cd -- "$source_dir" && qsub -terse -o "$work/sge.out" "$@"); }
steps_of() { wc -l 2>/dev/null <"$work/results/MNLI/metrics.jsonl" || echo 0; }
# shellcheck disable=SC2317 # by wait_until
trained() { [ "$(steps_of)" -gt "$1" ]; }
# shellcheck disable=SC2317
queue_empty() { [ -z "$(qstat)" ]; }
# shellcheck disable=SC2317
quiet() { ! pgrep -f "$CAIRN_BINARY|^cairn " >/dev/null; }
# shellcheck disable=SC2317
holds() { grep -qF -- "$1" "$work/sge.out" 2>/dev/null; }
over() { # over WHAT: the queue is empty, and no process is left
    wait_until "$hang_limit" queue_empty || { complain "$1: still in the queue: $(qstat)" && qdel -f '*' >/dev/null; }
    wait_until "$hang_limit" quiet || complain "$1: left behind: $(pgrep -af "$CAIRN_BINARY|^cairn ")"
}

# The unchanged job, with the execution daemons instead of ssh; later jobs have a stand-in for ssh.
CAIRN_SSH='' submit hpcai_scripts/job.sge "${small[@]}" --max-steps 6 >"$work/.id" || complain "qsub: $(cat "$work/.id")"
over "the job"
has_file results/MNLI/model.safetensors results/MNLI/eval_results.json
[ "$(steps_of)" -eq 6 ] || complain "job.sge: $(steps_of) steps: $(cat sge.out)"
holds "2 ranks on 2 hosts" || complain "not on both hosts: $(cat sge.out)"
rm -rf results sge.out

# The time limit: the job saves, ends with 99, is requeued, and resumes. Half of a short limit is a long wait, so that
# the signal before a limit comes by hand, to the job's shell.
submit -l h_rt="$(quick_or_deep 01:00:00 00:01:40)" hpcai_scripts/job.sge "${small[@]}" "${endless[@]}" >"$work/.id"
wait_until "$hang_limit" trained 3 || { complain "the run did not begin: $(cat sge.out)" && finish; }
if [ -z "${CAIRN_TEST_DEEP:-}" ]; then
    grep -q 'this job has 3[0-9]* s left; Cairn stops after 3[0-9][0-9][0-9]' sge.out || complain "the limit is not obeyed: $(cat sge.out)"
    kill -s USR2 "$(pgrep -f "^bash .*/job_scripts/$(cat .id) ")"
fi
# shellcheck disable=SC2317 # by wait_until
again() { [ "$(grep -c 's left; Cairn stops after' "$work/sge.out")" -ge 2 ]; }
wait_until "$hang_limit" again || complain "it was not requeued: $(cat sge.out) $(qstat -j "$(cat .id)" 2>&1 | tail -n 5)"
before=$(steps_of)
wait_until "$hang_limit" trained $((before + 5)) || complain "it did not resume: $(cat sge.out)"
# Deleted: -notify sends SIGUSR2 first, and the job saves.
qdel "$(cat .id)" >/dev/null
over "the deleted job"
compgen -G 'results/MNLI/checkpoint-*/manifest.json' >/dev/null || complain "no checkpoint was saved"
finish
