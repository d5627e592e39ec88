# shellcheck shell=bash
# nap SECONDS: waits without starting a process. Before bash 5.2 `read -t` waits for ever where its time passes before it
# reads.
if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 502)); then
    exec {nap_from}<> <(:)
    nap() { read -rt "$1" -u "$nap_from" || true; }
else
    nap() { sleep "$1"; }
fi
