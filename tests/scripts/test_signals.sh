#!/usr/bin/env bash
# A signal while a script builds, or while cairn works for it: all that it started ends, and so does the script.
set -uo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

# A copy of the scripts, with a cmake and a cairn that take for ever; each process that they start writes down its number.
mkdir -p "a copy" bin
cp -r "$scripts" "a copy/"
printf 'require_installed() { :; }\n' >>"a copy/hpcai_scripts/common.sh"
cat >bin/cmake <<'END2'
#!/usr/bin/env bash
[ "$1" = --build ] || exit 0
sleep 1000 & # a compiler
bash -c "trap '' TERM HUP INT; echo \$\$ >>'$WORK/pids'; while :; do sleep 0.2; done" & # and one that will not end
printf '%s\n' $$ $! >>"$WORK/pids"
pgrep -P $$ >>"$WORK/pids"
touch "$WORK/begun"
wait
END2
cat >bin/cairn <<'END2'
#!/usr/bin/env bash
[ "$1$CAIRN_PRINT_CONFIG" = glue ] || exit 0
trap 'kill $!; exit 75' TERM
echo $$ >>"$WORK/pids"
sleep 1000 &
touch "$WORK/begun"
wait
END2
chmod +x bin/cmake bin/cairn
export WORK=$work
# stopped SIGNAL CODE WHAT COMMAND...: the script gets the signal once its work has begun
stopped() {
    local name=$1 wanted=$2 what=$3 code=0 pid script
    shift 3
    rm -f pids begun
    env -u CAIRN_BINARY --default-signal=HUP PATH="$work/bin:$PATH" "$@" >log 2>&1 &
    script=$!
    wait_until "$hang_limit" test -e begun || { complain "$what does not begin: $(cat log)" && return; }
    kill -s "$name" "$script"
    wait_until "$hang_limit" gone "$script" || { complain "$what does not end at SIG$name" && kill -9 "$script"; }
    wait "$script" || code=$?
    [ "$code" -eq "$wanted" ] || complain "$what ended with $code instead of $wanted at SIG$name: $(cat log)"
    while read -r pid; do
        wait_until "$hang_limit" gone "$pid" || { complain "$what at SIG$name left process $pid: $(tr '\0' ' ' <"/proc/$pid/cmdline")" && kill -9 "$pid"; }
    done <pids
}
for name in TERM HUP USR2; do
    stopped "$name" 75 run_glue_multinode.sh "a copy/hpcai_scripts/run_glue_multinode.sh" --task MNLI
    grep -q "stopped by SIG$name during the build" log || complain "it does not say what happened: $(cat log)"
done
stopped TERM 75 run_pretraining_multinode.sh "a copy/hpcai_scripts/run_pretraining_multinode.sh" --phase 1
stopped TERM 75 run_glue.sh "a copy/hpcai_scripts/run_glue.sh"
stopped TERM 75 quickstart.sh "a copy/hpcai_scripts/quickstart.sh"
stopped TERM 75 test.sh "a copy/hpcai_scripts/test.sh" release
SGE_ROOT=/x JOB_ID=7 stopped USR2 99 "a job of Grid Engine" "a copy/hpcai_scripts/run_glue_multinode.sh"

# Grid Engine's USR1, which asks for a save, before the job's program has a handler: the program starts again.
cat >program <<'END2'
#!/usr/bin/env bash
echo run >>"$WORK/runs"
[ "$(wc -l <"$WORK/runs")" -gt 1 ] && exit 7
while :; do # the first may come before the shell forwards it
    kill -s USR1 $PPID
    sleep 0.2
done
END2
chmod +x program
code=0
(cd "a copy" && SGE_ROOT=/x JOB_ID=7 bash -c 'source hpcai_scripts/job.sh && note_signals && kill -s USR1 $$ && run_forwarding "$1"' \
    job "$work/program") >log 2>&1 || code=$?
[ "$code" -eq 7 ] && [ "$(wc -l <runs)" -ge 2 ] || complain "USR1 before the program listens: code $code, $(wc -l <runs) runs: $(cat log)"

mkdir -p "a copy/tasks/glue/sample"
cp "$sample/config.json" "a copy/tasks/glue/sample/"
stopped TERM 75 "quickstart.sh, training" env CAIRN_BINARY="$work/bin/cairn" "a copy/hpcai_scripts/quickstart.sh"

# A job comes back after a stop, a lost rank and damaged memory, of the last two ten times at most; after nothing else.
printf '#!/bin/sh\nexit $END\n' >"a copy/hpcai_scripts/ends.sh"
printf '#!/bin/sh\ncase $* in *%%L*) echo 1:00:00 ;; *) echo RUNNING ;; esac\n' >bin/squeue
printf '#!/bin/sh\ntouch "$WORK/back"\n' | tee bin/scontrol >bin/qrerun
chmod +x "a copy/hpcai_scripts/ends.sh" bin/squeue bin/scontrol bin/qrerun
# comes_back YES_OR_NO CODE EARLIER: of a job whose run ends with that code, behind so many earlier starts
comes_back() {
    local job back
    for job in "SLURM_RESTART_COUNT=$3 SLURM_JOB_ID=7 slurm" "RUN_FAULTS=$3 PBS_WALLTIME=3600 PBS_JOBID=7 pbs"; do
        rm -f back
        # shellcheck disable=SC2086 # several words
        (cd "a copy" && env PATH="$work/bin:$PATH" RUN_SCRIPT=ends.sh END="$2" ${job% *} bash "hpcai_scripts/job.${job##* }") >log 2>&1
        if [ -e back ]; then back=yes; else back=no; fi
        [ "$back" = "$1" ] || complain "job.${job##* } behind $3 starts, code $2: comes back: $back: $(cat log)"
    done
}
for code in 75 77 78; do comes_back yes "$code" 0; done
for code in 77 78; do comes_back no "$code" 10; done
for code in 0 1 2 76 79; do comes_back no "$code" 0; done
finish
