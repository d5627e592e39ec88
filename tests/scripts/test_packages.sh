#!/usr/bin/env bash
# The scripts where packages are missing, with a PATH whose apt-get and sudo only record their calls.
set -euo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

for program in gcc g++ cmake ninja pkg-config; do
    command -v "$program" >/dev/null || { echo "skipped: $program is not installed here" && exit 77; }
done
[ -r /etc/debian_version ] || { echo "skipped: not a Debian or Ubuntu" && exit 77; }

mkdir bin real
for program in bash env dirname basename cat sed grep mktemp rm ln uname; do ln -s "$(command -v "$program")" bin/; done
# With the PATH of now, without which a compiler that is a link to ccache finds no compiler.
for program in gcc g++ cmake ninja pkg-config; do
    printf '#!%s\nPATH=%q exec %q "$@"\n' "$(command -v bash)" "$PATH" "$(command -v "$program")" >"real/$program"
    chmod +x "real/$program"
done
note() { printf '#!%s\n%s\n' "$(command -v bash)" "$2" >"bin/$1" && chmod +x "bin/$1"; }
# shellcheck disable=SC2016 # expanded by the stubs
stub_apt() {
    note apt-get 'echo "apt-get $*" >>"'"$work"'/notes"; [ "$1" != install ] || ln -sf "'"$work"'"/real/* "'"$work"'/bin/"'
}
note id 'echo 1000'
# shellcheck disable=SC2016
note sudo 'echo sudo >>"'"$work"'/notes"; exec "$@"'
require() { # shellcheck disable=SC2016,SC2317
    env PATH="$work/bin" bash -c 'set -euo pipefail; source "$1/common.sh"; require_installed build; echo complete' x "$scripts"
}

# Without apt: the packages' names and exit code 2.
expect 2 require
says gcc g++ cmake ninja-build pkg-config libdnnl-dev libxxhash-dev libhdf5-dev libexpat1-dev libbz2-dev zlib1g-dev libgloo-dev "run this again"

# apt as a user: update first, through sudo; then everything is found and no further package is requested.
stub_apt
expect 0 require
says complete
[ "$(grep -v -e '^sudo' notes | head -n 1)" = "apt-get update -q" ] || complain "apt-get update does not come first: $(cat notes)"
grep -q '^apt-get install .* gcc g++ cmake ninja-build pkg-config libdnnl-dev libxxhash-dev libhdf5-dev libexpat1-dev libbz2-dev zlib1g-dev libgloo-dev$' notes ||
    complain "not what was to be installed: $(cat notes)"
[ "$(grep -c sudo notes)" -eq 2 ] || complain "sudo was used $(grep -c sudo notes) times"
rm notes
expect 0 require
[ ! -e notes ] || complain "everything was there, but: $(cat notes)"

# As root without sudo.
rm bin/{gcc,g++,cmake,ninja,pkg-config,sudo}
note id 'echo 0'
expect 0 require
! grep -q sudo notes || complain "root needs no sudo"
# Neither root nor sudo.
rm bin/{gcc,g++,cmake,ninja,pkg-config} notes
note id 'echo 1000'
expect 2 require
says "neither root nor sudo"
[ ! -e notes ] || complain "apt-get was called without the right to"
# apt that fails.
note id 'echo 0'
note apt-get 'exit 100'
expect 1 require
says "apt-get update failed"
finish
