#!/usr/bin/env bash
# A folder with room for the snapshot of one of two ranks: refused before the first step, with the bytes of both;
# --snapshot-steps auto continues without snapshots.
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/dist/snapshot_lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/snapshot_lib.sh"
skip_without_gloo
if [ -z "${CAIRN_TEST_MOUNTS:-}" ]; then
    if [ "$(id -u)" -ne 0 ] || ! unshare --mount true 2>/dev/null; then
        echo "skipped: a small tmpfs needs root and a kernel with namespaces"
        exit 77
    fi
    cd / && rm -rf -- "$work" "$memory" # the script starts again
    CAIRN_TEST_MOUNTS=1 exec unshare --mount bash "$here/${0##*/}" "$@"
fi

exec 2>/dev/null # the shell reports every killed process
make_case
run=("${task[@]}" --max-steps 12 --bucket-size 4KiB "${patient[@]}")
for i in "${!run[@]}"; do if [ "${run[i]}" = "$memory" ]; then where=$i; fi; done

# The file of one rank, in KiB.
start_stopped 2 2 log "${task[@]}" --max-steps 9 --bucket-size 4KiB --snapshot-steps 1 --output-dir measured
one=$(du -k "$memory"/cairn-*-2-0-0.snapshot | cut -f1)
kill -9 "${ranks[@]}"
end_ranks
rm -f "$memory"/cairn-*
[ "$one" -gt 100 ] || complain "a snapshot of $one KiB"

small=$work/small
mkdir "$small"
trap 'umount -l "$small" 2>/dev/null; rm -rf -- "$work" "$memory"' EXIT
mount -t tmpfs -o "size=$((one * 3 / 2))k" none "$small"
run[where]=$small
start_ranks 2 log "${run[@]}" --snapshot-steps 2 --output-dir refused
end_ranks
[ "${codes[*]}" = "76 76" ] || complain "exit codes ${codes[*]}: $(cat log.0)"
grep -q "snapshots of 2 ranks .* MiB there, .* MiB are free" log.0 || { complain "no bytes of both in the message" && cat log.0; }
[ ! -s refused/metrics.jsonl ] || complain "there were steps"
[ -z "$(ls -A "$small")" ] || complain "files remain: $(ls "$small")"

start_ranks 2 log "${run[@]}" --snapshot-steps auto --output-dir without
end_ranks
[ "${codes[*]}" = "0 0" ] || complain "exit codes ${codes[*]}: $(cat log.0)"
[ "$(cat log.* | grep -c 'no snapshots are taken: .*snapshots of 2 ranks')" -eq 1 ] || { complain "not exactly one warning" && cat log.*; }
[ -z "$(ls -A "$small")" ] || complain "files remain: $(ls "$small")"

mount -o "remount,size=$((one * 3))k" "$small"
start_ranks 2 log "${run[@]}" --snapshot-steps 2 --output-dir fits
end_ranks
[ "${codes[*]}" = "0 0" ] || complain "exit codes ${codes[*]} with room for both: $(cat log.0)"
exit $((failures > 0))
