# Runs the commands of a page of docs/, and looks for what the page promises. For tests that have sourced lib.sh.
# shellcheck shell=bash

where='' # for messages

# try COMMAND: runs it in this shell, so that the next ones have its variables.
try() {
    local code=0
    command=$1 output=
    eval "$command" >"$work/.stdout" 2>"$work/.stderr" </dev/null || code=$?
    output=$(cat "$work/.stdout" "$work/.stderr")
    if grep -q 'built without expat' "$work/.stderr"; then echo "skipped: built without expat" && exit 77; fi
    [ "$code" -eq 0 ] || { complain "$where: exit code $code of: $command" && tail -n 20 <<<"$output"; }
}

# look_for LIST: `a text of the output`, file `a path`, …
look_for() {
    local rest=$1
    while [[ $rest =~ (file )?\`([^\`]*)\` ]]; do
        rest=${rest#*"${BASH_REMATCH[0]}"}
        if [ -n "${BASH_REMATCH[1]}" ]; then
            [ -s "${BASH_REMATCH[2]}" ] || complain "$where: no file ${BASH_REMATCH[2]} after: $command"
        else
            grep -qF -- "${BASH_REMATCH[2]}" <<<"$output" ||
                { complain "$where: '${BASH_REMATCH[2]}' is not in the output of: $command" && tail -n 20 <<<"$output"; }
        fi
    done
}

# try_page PAGE: the lines of all its blocks of commands (```sh); a line that begins with "# shows" says what to look
# for in the output of the line before it.
try_page() {
    local line lines=0
    where=${1##*/}
    while IFS= read -r line; do
        if [[ $line == '# shows '* ]]; then look_for "$line"; else try "$line"; fi
        lines=$((lines + 1))
    done < <(awk '/^```/ { within = $0 == "```sh"; next } within && NF' "$1")
    [ "$lines" -gt 0 ] || complain "$1 has no commands"
}

# needs_modules: ends the test where this build lacks what the pages use.
needs_modules() {
    local needed
    "$CAIRN_BINARY" doctor >"$work/.doctor"
    for needed in 'gloo  *loads' 'HDF5  *yes'; do
        grep -q "^$needed" "$work/.doctor" || { echo "skipped: a command of the page needs ${needed%% *}" && exit 77; }
    done
}
