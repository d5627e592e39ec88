#!/usr/bin/env bash
# A real OpenPBS on four hosts (tests/schedulers/pbs_lab.sh): hpcai_scripts/job.pbs as an ordinary user submits it, past its
# walltime, without ssh, suspended, as an array, with faults and deleted. With "cgroups": memory and core limits.
set -uo pipefail
# shellcheck source=tests/dist/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
pbs=${CAIRN_TEST_PBS:-}
skip() { echo "skipped: $1" && exit 77; }
[ -x "$pbs/sbin/pbs_mom" ] || skip "CAIRN_TEST_PBS does not name the folder of an OpenPBS (configured with --prefix=/opt/pbs)"
[ "$(id -u)" -eq 0 ] || skip "the hosts need root"
[ -e "$(dirname -- "$CAIRN_BINARY")/cairn_gloo.so" ] || skip "needs the gloo module"
for program in sshd psql ip; do
    [ -n "$(PATH=$PATH:/usr/sbin command -v "$program")" ] || skip "$program is missing (openssh-server, postgresql, iproute2)"
done
part=${1:-jobs}
if [ "$part" = cgroups ] && [ ! -d /sys/fs/cgroup/memory ]; then skip "control groups are not of version 1"; fi

export PBS_LAB=$work/lab
mkdir -p "$PBS_LAB"
chmod 711 "$work"
ln -s "$PBS_LAB" "/tmp/cairn-pbs-$$" # its path has no space
PBS_LAB=/tmp/cairn-pbs-$$
lab() { "$source_dir/tests/schedulers/pbs_lab.sh" "$@"; }
