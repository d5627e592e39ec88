#!/usr/bin/env bash
# A real OpenPBS on four hosts (tests/schedulers/pbs_lab.sh): hpcai_scripts/job.pbs as an ordinary user submits it, past
# its walltime, without ssh, suspended, put back by the server, in an array, after faults, deleted. With the argument
# "cgroups": limits of memory and cores.
set -uo pipefail
# shellcheck source=tests/dist/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
pbs=${CAIRN_TEST_PBS:-}
skip() { echo "skipped: $1" && exit 77; }
[ -x "$pbs/sbin/pbs_mom" ] || skip "CAIRN_TEST_PBS does not name the folder of an OpenPBS (built with --prefix=/opt/pbs)"
[ "$(id -u)" -eq 0 ] || skip "the hosts need root"
[ -e "$(dirname -- "$CAIRN_BINARY")/cairn_gloo.so" ] || skip "needs the gloo module"
PATH=$PATH:/usr/sbin
for program in sshd psql ip; do command -v "$program" >/dev/null || skip "$program is missing (openssh-server, postgresql, iproute2)"; done

PBS_LAB=$(mktemp -d "${TMPDIR:-/tmp}/cairn-pbs-XXXXXX") # PBS's configuration takes no space
export PBS_LAB
lab() { "$source_dir/tests/schedulers/pbs_lab.sh" "$@"; }
trap 'lab stop; rm -rf -- "$work" "$PBS_LAB" "$CAIRN_SNAPSHOT_DIR"' EXIT
lab start >"$work/lab.out" 2>&1 || { complain "PBS did not start: $(cat "$work/lab.out")" && finish; }

share=$PBS_LAB/share source=$PBS_LAB/share/source
user() { lab in h0 user "$@"; }
mkdir -p "$source/hpcai_scripts"
cp "$scripts"/* "$source/hpcai_scripts/"
make_tiny_bert "$share/bert"
cp -r "$sample" "$share/sample"
chown -R 4001:4001 "$share"
small="--model-config $share/bert/config.json --vocab $share/bert/vocab.txt --data-dir $share/sample --connect-timeout 120s"
endless="--max-steps 1000000 --warmup 0 --schedule constant --peer-timeout 15s --log-every 100"

# submit NAME FLAGS QSUB_FLAG...: two hosts; prints the job's number. RESULTS_DIR is $share/NAME.
submit() {
    local name=$1 flags=$2
    shift 2
    user env -C "$source" "CAIRN_BINARY=$CAIRN_BINARY" "RESULTS_DIR=$share/$name" "RUN_FLAGS=$small $flags" \
        "CAIRN_MAX_RESTARTS=${restarts:-3}" "CUDA_VISIBLE_DEVICES=${devices:-}" qsub -N "$name" -l select="${chunks:-2:ncpus=1:mpiprocs=1}" \
        -l walltime="${walltime:-00:30:00}" "$@" "${script:-hpcai_scripts/job.pbs}"
}
# The output of all jobs of a name, finished or not.
printed() { cat "$source/$1".o* "$PBS_LAB"/spool/*/spool/*.OU 2>/dev/null; }
steps_of() { wc -l 2>/dev/null <"$share/$1/MNLI/metrics.jsonl" || echo 0; }
# shellcheck disable=SC2317 # by wait_until
trained() { [ "$(steps_of "$1")" -gt "$2" ]; }
# shellcheck disable=SC2317
over() { [ -z "$(user qselect -N "$1")" ]; } # no job of that name is queued or runs
# shellcheck disable=SC2317
running() { [ -n "$(user qselect -N "$1" -s R)" ]; }
# shellcheck disable=SC2317
says_so() { [[ $(printed "$1") == *"$2"* ]]; }
wait_over() { wait_until "$hang_limit" over "$1" || { complain "$1 does not end: $(user qstat -f | tail -n 30)" && user qdel -W force "$(user qselect -N "$1")"; }; }
begun() { wait_until "$hang_limit" trained "$1" "${2:-20}" || complain "$1 does not begin: $(printed "$1")"; }
# shellcheck disable=SC2317
quiet() { ! pgrep -u 4001 -x cairn >/dev/null; }
none_left() { wait_until "$hang_limit" quiet || complain "$1: left behind: $(pgrep -u 4001 -a cairn)"; }
exit_of() { user qstat -xf "$1" | sed -n 's/ *Exit_status = //p'; }
# Ranks on all hosts by the letters of their states.
states() { ps -u 4001 -o stat=,args= | awk '/cairn glue/ && !/launch/ { print substr($1, 1, 1) }' | sort | tr -d '\n'; }
# shellcheck disable=SC2317
stopped_all() { [ "$(states)" = TT ]; }

past_walltime() { # three or more jobs have the weights of one
    submit whole "--max-steps 1200 --warmup 0 --schedule constant" >/dev/null
    walltime=00:00:40 submit parts "--max-steps 1200 --warmup 0 --schedule constant" -A account >/dev/null
    wait_over whole
    wait_over parts
    cmp "$share/whole/MNLI/model.safetensors" "$share/parts/MNLI/model.safetensors" || complain "several jobs have other weights than one"
    [ "$(printed parts | grep -c 'submitted again as')" -ge 1 ] || complain "one job was enough: $(printed parts | tail -n 5)"
    says_so parts '-A account' || complain "the account is lost: $(printed parts | grep qsub)"
    [ "$(printed parts | grep -c 's left; Cairn stops after')" -gt 1 ] || complain "a later job did not ask for its own time"
    none_left "past walltime"
}

refused() { # compute nodes may not submit: the printed command resumes the run
    printf '#!/bin/sh\necho "qsub: not from here" >&2\nexit 1\n' >"$share/qsub"
    chmod 755 "$share/qsub"
    sed "s|^set -uo pipefail|set -uo pipefail\nPATH=$share/bin:\$PATH|" "$scripts/job.pbs" >"$source/own.pbs"
    mkdir -p "$share/bin" && mv "$share/qsub" "$share/bin/"
    chown -R 4001:4001 "$share/bin" "$source"
    chunks=1:ncpus=1:mpiprocs=1 walltime=00:00:30 script=own.pbs submit refused "$endless --output-dir '$share/a folder, two'" >/dev/null
    wait_over refused
    says_so refused "(qsub: not from here)" || complain "the reason is not printed: $(printed refused | tail -n 3)"
    line=$(printed refused | sed -n 's/^To resume, run on a login node: //p')
    rm -- "$share/bin/qsub"
    user env CUDA_VISIBLE_DEVICES= bash -c "$line" >"$work/.id" || complain "the printed command fails: $line: $(cat "$work/.id")"
    wait_until "$hang_limit" running refused || complain "the typed job does not run"
    user qdel "$(cat "$work/.id")"
    wait_over refused
    has_file "$share/a folder, two/metrics.jsonl"
    none_left "refused"
}

without_ssh() {
    lab in n2 root sh -c 'kill $(cat /run/sshd.pid)'
    submit tasks "--max-steps 20" >/dev/null
    wait_over tasks
    says_so tasks "n2: ssh does not reach it" || complain "ssh was not refused: $(printed tasks)"
    says_so tasks "trained 20 steps" || complain "by pbs_tmrsh: $(printed tasks)"
    lab in n1 root mount --bind /dev/null /opt/pbs/bin/pbs_tmrsh
    submit tasks2 "--max-steps 5" >/dev/null
    wait_over tasks2
    says_so tasks2 "trained 5 steps" || complain "by pbsdsh: $(printed tasks2)"
    lab in n1 root umount /opt/pbs/bin/pbs_tmrsh
    compgen -G "$source/.cairn-agents-*" && complain "the file for agents is left"
    none_left "without ssh"
    lab in n2 root /usr/sbin/sshd
}

suspended() {
    local job before
    job=$(submit suspended "$endless")
    begun suspended
    lab in h0 root qsig -s suspend "$job"
    wait_until "$hang_limit" stopped_all || complain "ranks do not stop: '$(states)'"
    before=$(steps_of suspended)
    sleep 25 # more than --peer-timeout
    [ "$(steps_of suspended)" -eq "$before" ] || complain "it trained while it was suspended"
    lab in h0 root qsig -s resume "$job"
    wait_until "$hang_limit" trained suspended $((before + 20)) || complain "it does not continue: $(printed suspended)"
    says_so suspended "starting again" && complain "a rank was blamed: $(printed suspended)"
    before=$(steps_of suspended)
    lab in n1 root pkill -TSTP -f 'cairn launch --max' # as Slurm suspends, or a terminal
    wait_until "$hang_limit" stopped_all || complain "ranks do not stop with the launcher: '$(states)'"
    sleep 20
    lab in n1 root pkill -CONT -f 'cairn launch --max'
    wait_until "$hang_limit" trained suspended $((before + 20)) || complain "it does not continue after SIGTSTP: $(printed suspended)"
    says_so suspended "starting again" && complain "a rank was blamed after SIGTSTP: $(printed suspended)"
    user qdel "$job"
    wait_over suspended
    compgen -G "$share/suspended/MNLI/checkpoint-*/manifest.json" >/dev/null || complain "qdel: no checkpoint"
    says_so suspended "submitted again" && complain "a deleted job came back"
    none_left "deleted"
}

put_back() { # by the server, while old ranks may still save: the new start waits for the folder
    local job before
    job=$(submit again "$endless")
    begun again
    lab in h0 root qrerun "$job"
    wait_until "$hang_limit" running again || complain "it does not run again: $(user qstat -f "$job")"
    before=$(steps_of again)
    wait_until "$hang_limit" trained again $((before + 20)) || complain "it does not resume: $(printed again)"
    user qdel "$job"
    wait_over again
}

faults() { # a killed rank, no starts left: the job comes back, also with chunks to which the server adds ncpus
    chunks=2:mpiprocs=1 restarts=0 submit fault "$endless" >/dev/null
    begun fault
    lab in n2 root pkill -KILL -x cairn
    wait_until "$hang_limit" says_so fault "ended with 77; submitted again as" || complain "after 77: $(printed fault | tail -n 5)"
    before=$(steps_of fault)
    wait_until "$hang_limit" trained fault $((before + 5)) || complain "it does not resume: $(printed fault | tail -n 5)"
    user qdel "$(user qselect -N fault)"
    wait_over fault
    none_left "fault"
}

gpus() { # one line per host in PBS_NODEFILE is not a slot
    chunks=1:ncpus=2:ngpus=2 devices=0,1 submit gpus "--max-steps 5 --backend cpu" >/dev/null
    wait_over gpus
    says_so gpus "n1 gets 2 ranks for its GPUs" || complain "no warning: $(printed gpus)"
    says_so gpus "2 ranks on this host" || complain "not a rank for each GPU: $(printed gpus)"
}

array() {
    # shellcheck disable=SC2016 # job.sh puts the index in
    chunks=1:ncpus=1:mpiprocs=1 submit array '--max-steps 5 --seed $PBS_ARRAY_INDEX' -J 1-2 >/dev/null
    wait_over array
    has_file "$share/array/1/MNLI/model.safetensors" "$share/array/2/MNLI/model.safetensors"
    cmp -s "$share"/array/{1,2}/MNLI/model.safetensors && complain "the index is not in the flags: both seeds are the same"
}

limits() { # by PBS's hook, which is written for control groups of version 1 here
    local job h
    if [ ! -d /sys/fs/cgroup/memory ]; then echo "limits are left out: the control groups are not of version 1" && return; fi
    lab stop
    lab cgroups
    lab start >"$work/lab.out" 2>&1 || { complain "PBS did not start with control groups: $(cat "$work/lab.out")" && return; }
    # Without mem= a host has 256 MB, which the plan obeys. Ranks are in the job's control group and on its cores.
    job=$(submit small "$endless")
    begun small
    for h in n1 n2; do
        lab in "$h" root sh -c 'grep -q "memory:.*/jobid/" "/proc/$(pgrep -f "^cairn glue")/cgroup"' || complain "$h: the rank is outside the job"
        [ "$(lab in "$h" root sh -c 'grep Cpus_allowed_list "/proc/$(pgrep -f "^cairn glue")/status"' | grep -c '[-,]')" -eq 0 ] ||
            complain "$h: the rank is on more than the job's one core"
    done
    user qdel "$job"
    wait_over small
    chunks=2:ncpus=1:mpiprocs=1:mem=100mb submit exhausted "--padded --batch-size 1024 --micro-batch-tokens 131072 --memory-budget 8GiB" >/dev/null
    wait_over exhausted
    says_so exhausted "was killed by the kernel for memory: the limit there is 100 MiB" || complain "not said: $(printed exhausted)"
    says_so exhausted "starting again" && complain "it was started again without more memory"
    says_so exhausted "submitted again" && complain "it was submitted again without more memory"
    [ "$(exit_of "$(user qselect -x -N exhausted)")" = 76 ] || complain "exit code $(exit_of "$(user qselect -x -N exhausted)") instead of 76"
    none_left "exhausted"
}

for case in ${CAIRN_TEST_CASES:-past_walltime refused without_ssh suspended put_back faults gpus array limits}; do "$case"; done
finish
