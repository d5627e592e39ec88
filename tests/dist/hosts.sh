# Hosts for tests, as network namespaces on a bridge: h1 … hN, 10.77.0.1 … N, each with a host name of its own; the test
# itself is on the bridge too, 10.77.0.254. The kernel removes all of them with the test's namespaces.
# shellcheck shell=bash disable=SC2154 # $work: lib.sh

# within_hosts N "$0" "$@": runs the script again in the namespaces, unless it already runs there. Exits with 77 (skipped)
# where namespaces are not allowed.
within_hosts() {
    local n=$1 i
    shift
    if [ -z "${CAIRN_TEST_HOSTS:-}" ]; then
        if [ "$(id -u)" -ne 0 ] || ! command -v ip >/dev/null || ! unshare --net --mount --uts --pid --fork true 2>/dev/null; then
            echo "skipped: network namespaces need root, iproute2 and a kernel that gives them"
            exit 77
        fi
        cd / && rm -rf -- "$work" ${CAIRN_SNAPSHOT_DIR:+"$CAIRN_SNAPSHOT_DIR"} # the script begins again
        CAIRN_TEST_HOSTS=$n exec unshare --net --mount --uts --pid --fork --kill-child --mount-proc bash "$@"
    fi
    mkdir -p /run/netns
    mount -t tmpfs tmpfs /run/netns
    mount --make-rprivate / 2>/dev/null
    hostname h0
    ip link set lo up
    ip link add bridge0 type bridge
    ip addr add 10.77.0.254/24 dev bridge0
    ip link set bridge0 up
    printf '127.0.0.1 localhost\n10.77.0.254 h0\n' >"$work/hosts"
    for ((i = 1; i <= n; i++)); do
        if ! ip netns add "h$i" 2>"$work/.stderr"; then
            echo "skipped: $(cat "$work/.stderr")"
            exit 77
        fi
        ip link add "to$i" type veth peer name eth0 netns "h$i"
        ip link set "to$i" master bridge0 up
        ip -n "h$i" addr add "10.77.0.$i/24" dev eth0
        ip -n "h$i" link set eth0 up
        ip -n "h$i" link set lo up
        printf '10.77.0.%d h%d\n' "$i" "$i" >>"$work/hosts"
    done
    mount --bind "$work/hosts" /etc/hosts
    cat >"$work/ssh.sh" <<'END'
#!/bin/sh
# Stands in for ssh: HOST COMMAND.
[ -n "$1" ] && [ -e "/run/netns/$1" ] || { echo "ssh: Could not resolve hostname $1" >&2; exit 255; }
exec ip netns exec "$1" unshare --uts sh -c 'hostname "$1"; exec sh -c "$2"' sh "$1" "$2"
END
    chmod +x "$work/ssh.sh"
    cp -- "$work/ssh.sh" "/run/netns/.ssh" # its path has no space
    export CAIRN_SSH=/run/netns/.ssh
}
