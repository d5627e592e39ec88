# A Slurm of the test's own on the hosts of tests/dist/hosts.sh: slurmctld here, slurmd on h1 … hN, each with as many
# cores to give as job.pbs asks for, one partition, munge with a key of its own. Everything lies in /run/netns/slurm and
# in the test's namespaces, and goes with them.
# shellcheck shell=bash

# Ends the test with 77 where Slurm is not installed.
slurm_or_skip() {
    local program
    for program in slurmctld slurmd sbatch munged; do
        command -v "$program" >/dev/null && continue
        echo "skipped: $program is not installed (Debian: slurm-wlm munge)"
        exit 77
    done
}

# slurm_start N: returns when all N nodes are idle.
slurm_start() {
    local n=$1 i end
    slurm=/run/netns/slurm # a short path without a space: munge's socket must have one
    mkdir -p "$slurm/state" "$slurm/log"
    chmod 755 "$slurm"
    head -c 1024 /dev/urandom >"$slurm/munge.key"
    chmod 400 "$slurm/munge.key"
    munged --force --key-file="$slurm/munge.key" --socket="$slurm/munge.socket" --pid-file="$slurm/munge.pid" \
        --log-file="$slurm/log/munged" --seed-file="$slurm/munge.seed" || return 1
    cat >"$slurm/slurm.conf" <<END
ClusterName=test
SlurmctldHost=h0(10.77.0.254)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$slurm/munge.socket
CredType=cred/munge
StateSaveLocation=$slurm/state
SlurmdSpoolDir=$slurm/spool.%n
SlurmctldPidFile=$slurm/slurmctld.pid
SlurmdPidFile=$slurm/slurmd.%n.pid
SlurmctldLogFile=$slurm/log/slurmctld
SlurmdLogFile=$slurm/log/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
SwitchType=switch/none
MpiDefault=none
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
KillWait=10
SlurmdTimeout=60
MinJobAge=300
JobRequeue=1
$(for ((i = 1; i <= n; i++)); do echo "NodeName=h$i NodeAddr=10.77.0.$i CPUs=20 Boards=1 SocketsPerBoard=1 CoresPerSocket=20 ThreadsPerCore=1 RealMemory=512"; done)
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
END
    export SLURM_CONF=$slurm/slurm.conf
    slurmctld -D >"$slurm/log/slurmctld.out" 2>&1 &
    disown
    for ((i = 1; i <= n; i++)); do
        mkdir -p "$slurm/spool.h$i"
        nsenter --net="/run/netns/h$i" unshare --uts sh -c "hostname h$i; exec slurmd -D -N h$i" >"$slurm/log/h$i.out" 2>&1 &
        disown
    done
    end=$((SECONDS + 60))
    until [ "$(sinfo -h -N -t idle -o %N 2>/dev/null | wc -l)" -eq "$n" ]; do
        if [ "$SECONDS" -gt "$end" ]; then
            echo "Slurm did not start:"
            tail -n 20 "$slurm"/log/*
            return 1
        fi
        sleep 0.2
    done
}

# slurm_wait JOB SECONDS: until it is out of the queue, or on hold.
slurm_wait() {
    local end=$((SECONDS + $2))
    while squeue -h -j "$1" -o %T 2>/dev/null | grep -q .; do
        if [ "$SECONDS" -gt "$end" ]; then
            complain "job $1 does not end: $(squeue -j "$1")"
            scancel "$1"
            return 1
        fi
        sleep 0.3
    done
}
