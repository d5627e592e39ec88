# A Slurm of the test's own on the hosts of tests/dist/hosts.sh: slurmctld here, slurmd on h1 … hN, each offering as
# many cores as job.pbs requests, one partition, munge with its own key. All files are in /run/netns/slurm and in the
# test's namespaces, and are removed with them. The packages need not be installed (packages.sh).
# shellcheck shell=bash disable=SC2154 # $source_dir: lib.sh

# shellcheck source=tests/schedulers/packages.sh
source "$source_dir/tests/schedulers/packages.sh"

# Ends the test with 77 (skipped) if Slurm is not installed and cannot be fetched. CAIRN_TEST_FETCH=1: always fetch.
slurm_or_skip() {
    local folder=${CAIRN_TEST_BUILD_DIR:-$source_dir/build}/slurm program missing='' libraries
    [ -z "${CAIRN_TEST_HOSTS:-}" ] || return 0
    for program in slurmctld slurmd sbatch munged; do command -v "$program" >/dev/null || missing=$program; done
    [ -n "$missing${CAIRN_TEST_FETCH:-}" ] || return 0
    mapfile -t libraries < <(not_installed libhwloc15 liblua5.1-0 libnuma1 libyaml-0-2 libjson-c5 libdbus-1-3 \
        libreadline8 liblz4-1 libpam0g libgcrypt20)
    if ! fetch_packages "$folder" slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge libmunge2 "${libraries[@]}"; then
        echo "skipped: Slurm is not installed, and its packages cannot be fetched (Debian: slurm-wlm munge)"
        exit 77
    fi
    for program in slurmctld slurmd slurmstepd; do ln -sf "$program-wlm" "$folder/root/usr/sbin/$program"; done # alternatives
    missing=$(missing_libraries "$folder" sbin/{slurmctld,slurmd,munged} bin/{sbatch,srun})
    if [ -n "$missing" ]; then
        echo "skipped: libraries of Slurm's packages are missing: $missing"
        exit 77
    fi
    export CAIRN_TEST_SLURM=$folder
}

# slurm_start N: returns when all N nodes are idle.
slurm_start() {
    local n=$1 i end
    [ -z "${CAIRN_TEST_SLURM:-}" ] || overlay_packages "$CAIRN_TEST_SLURM"
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
SchedulerParameters=sched_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
KillWait=30
SlurmdTimeout=600
UnkillableStepTimeout=600
BatchStartTimeout=600
MessageTimeout=60
TCPTimeout=60
MinJobAge=3600
JobRequeue=1
$(for ((i = 1; i <= n; i++)); do echo "NodeName=h$i NodeAddr=10.77.0.$i CPUs=20 Boards=1 SocketsPerBoard=1 CoresPerSocket=20 ThreadsPerCore=1 RealMemory=65536"; done)
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
    end=$((SECONDS + hang_limit))
    until [ "$(sinfo -h -N -t idle -o %N 2>/dev/null | wc -l)" -eq "$n" ]; do
        if [ "$SECONDS" -gt "$end" ]; then
            echo "Slurm did not start:"
            tail -n 20 "$slurm"/log/*
            return 1
        fi
        sleep 0.2
    done
}

# slurm_wait JOB: waits until the job has left the queue or is held.
slurm_wait() {
    local end=$((SECONDS + hang_limit))
    while squeue -h -j "$1" -o %T 2>/dev/null | grep -q .; do
        if [ "$SECONDS" -gt "$end" ]; then
            complain "job $1 does not end: $(squeue -j "$1")"
            scancel "$1"
            return 1
        fi
        sleep 0.3
    done
}
