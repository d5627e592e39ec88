# shellcheck shell=sh
# logged.sh LOG COMMAND...: writes the command's output to LOG and, if it fails, to the terminal.
log=$1
shift
"$@" >"$log" 2>&1 || { status=$?; cat "$log" >&2; rm -f "$log"; exit "$status"; }
