#!/usr/bin/env bash
# A PBS of four hosts on one machine: a server on h0, an execution daemon on n1, n2 and n3. Each host has namespaces of
# its own (network, UTS, PID, IPC, mounts), its own /etc, /tmp, /run, /dev/shm and sshd. It needs root, postgresql,
# openssh-server and iproute2.
#
#     pbs_lab.sh start            all hosts, the daemons, the nodes with ncpus=20 and ngpus=4
#     pbs_lab.sh in HOST USER COMMAND...   USER is root or user (uid 4001)
#     pbs_lab.sh boot HOST | crash HOST
#     pbs_lab.sh cgroups          before start: the hook that limits memory and cores; nodes have ncpus=2
#     pbs_lab.sh stop
#
# PBS_LAB: a folder for it. CAIRN_TEST_PBS: the folder with OpenPBS's bin and sbin, configured with --prefix=/opt/pbs.
set -u
L=${PBS_LAB:?} pbs=${CAIRN_TEST_PBS:?}
export PBS_LAB CAIRN_TEST_PBS
self=$(readlink -f "$0")
group=cairn-pbs-$(cksum <<<"$L" | cut -d' ' -f1)
hosts='h0 n1 n2 n3'
controllers='cpu cpuacct cpuset memory devices freezer'

address_of() { awk -v h="$1" '$2 == h { print $1 }' "$L/etc/hosts"; }
outside() { nsenter -t "$(cat "$L/lab.pid")" -m -n -p -- "$@"; }
child_of() { pgrep -P "$1" | head -n 1; }

# Files that all hosts have: names, users, ssh keys, PBS's configuration.
prepare() {
    local h server
    mkdir -p "$L"/{etc/ssh,log,share,spool,users/user/.ssh}
    chmod 755 "$L"
    printf '127.0.0.1 localhost\n10.66.0.10 h0\n10.66.0.1 n1\n10.66.0.2 n2\n10.66.0.3 n3\n' >"$L/etc/hosts"
    { grep -v '^user:' /etc/passwd && echo "user:x:4001:4001::$L/users/user:/bin/bash"; } >"$L/etc/passwd"
    { grep -v '^user:' /etc/group && echo 'user:x:4001:'; } >"$L/etc/group"
    { grep -v '^user:' /etc/shadow && echo 'user:*:19000:0:99999:7:::'; } >"$L/etc/shadow"
    chmod 600 "$L/etc/shadow"
    [ -e "$L/etc/ssh/ssh_host_ed25519_key" ] || ssh-keygen -q -t ed25519 -N '' -f "$L/etc/ssh/ssh_host_ed25519_key"
    [ -e "$L/users/user/.ssh/id_ed25519" ] || ssh-keygen -q -t ed25519 -N '' -f "$L/users/user/.ssh/id_ed25519"
    cp "$L/users/user/.ssh/id_ed25519.pub" "$L/users/user/.ssh/authorized_keys"
    printf '%s\n' 'HostKey /etc/ssh/ssh_host_ed25519_key' 'UsePAM no' 'PasswordAuthentication no' 'PermitRootLogin no' \
        'PidFile /run/sshd.pid' >"$L/etc/ssh/sshd_config"
    rm -f "$L/etc/ssh/ssh_known_hosts"
    for h in $hosts; do
        echo "$h,$(address_of "$h") $(cut -d' ' -f1,2 "$L/etc/ssh/ssh_host_ed25519_key.pub")" >>"$L/etc/ssh/ssh_known_hosts"
        server=0
        [ "$h" != h0 ] || server=1
        printf '%s\n' PBS_SERVER=h0 PBS_START_SERVER=$server PBS_START_SCHED=$server PBS_START_COMM=$server \
            PBS_START_MOM=$((1 - server)) PBS_EXEC=/opt/pbs PBS_HOME=/var/spool/pbs PBS_SCP=/usr/bin/scp >"$L/etc/pbs.conf.$h"
    done
    chown -R 4001:4001 "$L/users/user" "$L/share"
    chmod 700 "$L/users/user/.ssh"
}

hold() { # the bridge between the hosts; it ends with the lab
    local h
    mount --make-rprivate /
    mount -t tmpfs tmpfs /run
    mkdir -p /run/netns
    ip link set lo up
    ip link add br0 type bridge
    ip link set br0 up
    for h in $hosts; do
        ip netns add "$h"
        ip link add "to$h" type veth peer name eth0 netns "$h"
        ip link set "to$h" master br0 up
        ip -n "$h" addr add "$(address_of "$h")/24" dev eth0
        ip -n "$h" link set eth0 up
        ip -n "$h" link set lo up
    done
    echo ok >"$L/lab.ready"
    exec sleep infinity
}

# In the host's namespaces: mounts its folders, starts sshd and PBS, and remains as their first process.
init() {
    local h=$1 c d part
    if [ -e "$L/cgroups" ] && [ -z "${CGROUPS_DONE:-}" ]; then
        for c in $controllers; do
            d=/sys/fs/cgroup/$c
            mkdir -p "$d/$group/$h"
            if [ "$c" = cpuset ]; then
                for part in "$group" "$group/$h"; do
                    cat "$d/cpuset.cpus" >"$d/$part/cpuset.cpus"
                    cat "$d/cpuset.mems" >"$d/$part/cpuset.mems"
                done
            fi
            echo $$ >"$d/$group/$h/cgroup.procs"
        done
        CGROUPS_DONE=1 exec unshare --cgroup "$self" init "$h"
    fi
    mount --make-rprivate /
    mount -t proc proc /proc
    hostname "$h"
    if [ -n "${CGROUPS_DONE:-}" ]; then
        mount -t tmpfs tmpfs /sys/fs/cgroup
        for c in $controllers; do mkdir "/sys/fs/cgroup/$c" && mount -t cgroup -o "$c" cgroup "/sys/fs/cgroup/$c"; done
    fi
    rm -rf "$L/up/$h"
    for d in etc opt var/spool; do
        mkdir -p "$L/up/$h/$d" "$L/up/$h/work/$d"
        mount -t overlay overlay -o "lowerdir=/$d,upperdir=$L/up/$h/$d,workdir=$L/up/$h/work/$d" "/$d"
    done
    mkdir -p /var/spool/pbs /opt/pbs "$L/spool/$h"
    mount --bind "$L/spool/$h" /var/spool/pbs # PBS wants no world-writable folder above its own
    mount --bind "$pbs" /opt/pbs
    cp "$L"/etc/{passwd,group,shadow,hosts} /etc/
    cp "$L/etc/pbs.conf.$h" /etc/pbs.conf
    rm -rf /etc/ssh
    cp -a "$L/etc/ssh" /etc/ssh
    echo "$h" >/etc/hostname
    cp /opt/pbs/etc/pbs.sh /etc/profile.d/ 2>/dev/null
    mount -t tmpfs tmpfs /mnt
    mkdir /mnt/lab
    mount --bind "$L" /mnt/lab
    for d in /var/tmp /dev/shm /tmp; do mount -t tmpfs -o mode=1777 tmpfs "$d"; done
    mkdir -p "$L" && mount --bind /mnt/lab "$L"
    mount -t tmpfs -o mode=755 tmpfs /run
    mkdir -p /run/sshd /run/postgresql
    chown postgres: /run/postgresql
    /usr/sbin/sshd
    export PATH=/usr/sbin:/usr/bin:/sbin:/bin TZ=UTC
    cd / || exit
    if [ ! -e "$L/spool/$h/pbs_environment" ]; then
        /opt/pbs/libexec/pbs_postinstall >"$L/log/postinstall.$h" 2>&1
        cp "$L/etc/pbs.conf.$h" /etc/pbs.conf
        # shellcheck disable=SC2016 # the daemon's own words
        [ "$h" = h0 ] || printf '$clienthost h0\n$usecp *:%s/ %s/\n$logevent 0xffffffff\n' "$L" "$L" >"$L/spool/$h/mom_priv/config"
    fi
    /opt/pbs/libexec/pbs_init.d start >"$L/log/pbs.$h" 2>&1 </dev/null
    echo ok >"$L/host.$h.ready"
    trap : CHLD
    while :; do sleep 3600 & wait; done
}

boot() { # boot HOST: returns when its daemons run
    rm -f "$L/host.$1.ready"
    outside "$self" boot_in "$1"
    [ -e "$L/host.$1.ready" ] || { echo "$1 does not start" && cat "$L/log/boot.$1" "$L/log/pbs.$1" && return 1; }
}

boot_in() {
    local i
    ip -n "$1" link set eth0 up
    setsid nsenter "--net=/run/netns/$1" unshare --mount --uts --ipc --pid --fork --kill-child "$self" init "$1" >"$L/log/boot.$1" 2>&1 </dev/null &
    echo $! >"$L/host.$1.top"
    for ((i = 0; i < 1200; i++)); do
        [ ! -s "$L/host.$1.ready" ] || break
        sleep 0.1
    done
    child_of "$(cat "$L/host.$1.top")" >"$L/host.$1.pid"
}

configure() {
    cat <<'SETUP'
for h in n1 n2 n3; do qmgr -c "create node $h"; done
qmgr -c "set server scheduler_iteration = 20"
qmgr -c "set server flatuid = true"
qmgr -c "set server job_history_enable = true"
qmgr -c "set server query_other_jobs = true"
qmgr -c "create resource ngpus type=long,flag=hn"
for h in n1 n2 n3; do qmgr -c "set node $h resources_available.ncpus=$CPUS"; qmgr -c "set node $h resources_available.ngpus=4"; done
sed -i 's/^resources: "ncpus,/resources: "ncpus, ngpus,/' /var/spool/pbs/sched_priv/sched_config
pkill -HUP -x pbs_sched
SETUP
    # The hook as shipped, without the parts that these hosts lack.
    [ ! -e "$L/cgroups" ] || cat <<'SETUP'
qmgr -c "export hook pbs_cgroups application/x-config default" >/tmp/cgroups.json
python3 - <<'CHANGE'
import json
c = json.load(open('/tmp/cgroups.json'))
for name, part in c['cgroup'].items():
    if name not in ('cpuacct', 'cpuset', 'memory'): part['enabled'] = False
c['cgroup']['memory']['reserve_percent'] = 0
c['cgroup']['memory']['reserve_amount'] = '1GB'
json.dump(c, open('/tmp/cgroups.json', 'w'), indent=1)
CHANGE
qmgr -c "import hook pbs_cgroups application/x-config default /tmp/cgroups.json"
qmgr -c "set hook pbs_cgroups freq = 10"
qmgr -c "set hook pbs_cgroups enabled = True"
for h in n1 n2 n3; do qmgr -c "set node $h resources_available.ncpus=2"; done
SETUP
    echo 'for i in $(seq 100); do [ "$(pbsnodes -av | grep -c "state = free")" -eq 3 ] && exit 0; sleep 1; done; pbsnodes -av; exit 1'
}

enter() { # enter HOST USER COMMAND...
    local h=$1 user=$2 inside
    shift 2
    inside=(nsenter -t "$(cat "$L/lab.pid")" -m -n -p -- nsenter -t "$(cat "$L/host.$h.pid")" -m -n -p -u -i -C --)
    if [ "$user" = root ]; then
        exec "${inside[@]}" env -i PATH=/opt/pbs/bin:/opt/pbs/sbin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"
    fi
    exec "${inside[@]}" setpriv --reuid 4001 --regid 4001 --clear-groups env -i "HOME=$L/users/$user" "USER=$user" \
        "LOGNAME=$user" SHELL=/bin/bash PATH=/opt/pbs/bin:/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 "$@"
}

command=$1
shift
case $command in
start)
    prepare
    rm -f "$L/lab.ready"
    nohup setsid unshare --mount --net --pid --uts --fork --kill-child --mount-proc "$self" hold >"$L/log/holder" 2>&1 &
    echo $! >"$L/lab.top"
    for ((i = 0; i < 600; i++)); do
        [ ! -s "$L/lab.ready" ] || break
        sleep 0.1
    done
    child_of "$(cat "$L/lab.top")" >"$L/lab.pid"
    for h in $hosts; do boot "$h" || exit 1; done
    configure >"$L/setup.sh"
    "$self" in h0 root env CPUS=20 sh "$L/setup.sh" >"$L/log/setup" 2>&1 || { cat "$L/log/setup" && exit 1; }
    ;;
cgroups) mkdir -p "$L" && touch "$L/cgroups" ;;
hold | init | boot | boot_in) "$command" "$@" ;;
crash)
    outside ip -n "$1" link set eth0 down
    outside kill -9 "$(cat "$L/host.$1.top")"
    ;;
in) enter "$@" ;;
stop)
    kill -9 "$(cat "$L/lab.top")" 2>/dev/null
    for ((i = 0; i < 100; i++)); do # processes that were killed may keep their groups for a while
        find /sys/fs/cgroup/*/"$group" -depth -type d -exec rmdir {} \; 2>/dev/null
        compgen -G "/sys/fs/cgroup/*/$group" >/dev/null || break
        sleep 0.1
    done
    true
    ;;
esac
