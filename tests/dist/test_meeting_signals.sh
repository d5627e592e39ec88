#!/usr/bin/env bash
# A signal while ranks wait for others: they end with 75.
set -uo pipefail
# shellcheck source=tests/dist/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
if [ ! -e "$(dirname -- "$CAIRN_BINARY")/cairn_gloo.so" ]; then echo "skipped: needs the gloo module" && exit 77; fi

make_tiny_bert bert
small_data 40
small=(glue --do-train --model-config bert/config.json --vocab bert/vocab.txt --data-dir data --batch-size 4 --max-seq-length 32
    --max-steps 3 --verbose --output-dir out)
# rank R N: in the background; its number is in ${pids[R]}
rank() {
    rm -f "log.$1" # of an earlier one
    RANK=$1 WORLD_SIZE=$2 LOCAL_RANK=$1 LOCAL_WORLD_SIZE=$2 CAIRN_JOB=signals-$$ \
        "$CAIRN_BINARY" "${small[@]}" >"log.$1" 2>&1 </dev/null &
    pids[$1]=$!
}
# stop WHAT SIGNAL: signals all started ranks once each is at the meeting, where it would wait for an hour.
stop() {
    local r code
    for r in "${!pids[@]}"; do
        wait_until "$hang_limit" holds "log.$r" 'meets the others at' || complain "$1: rank $r does not come to the meeting"
    done
    for _ in $(seq $((RANDOM % 20))); do nap 0.01; done # anywhere in the meeting
    for r in "${!pids[@]}"; do kill -s "$2" "${pids[r]}"; done
    for r in "${!pids[@]}"; do
        wait_until "$hang_limit" gone "${pids[r]}" || kill -9 "${pids[r]}"
        code=0
        wait "${pids[r]}" || code=$?
        [ "$code" -eq 75 ] || complain "$1: rank $r ended with $code after SIG$2: $(tail -n 2 "log.$r")"
        grep -q "stopped by SIG$2, nothing is lost" "log.$r" || complain "$1: rank $r does not say what stopped it"
    done
    pids=()
}
rank 0 2
stop "rank 0 alone" TERM
rank 1 2
stop "rank 1 alone" INT
rank 0 3
rank 1 3
stop "two of three" TERM

# Under the launcher: a rank that never comes; then a host that never answers.
stop_launcher() { # stop_launcher WHAT: it ends with 75 after SIGTERM
    local code=0
    kill "$launcher"
    wait_until "$hang_limit" gone "$launcher" || kill -9 "$launcher"
    wait "$launcher" || code=$?
    [ "$code" -eq 75 ] || complain "$1: launch ended with $code: $(cat launch.out)"
}
cat >program.sh <<'END2'
#!/usr/bin/env bash
[ "$RANK" = 0 ] && exec "$CAIRN_BINARY" "$@"
trap 'exit 75' TERM
source "$NAP"
while :; do nap 0.1; done
END2
chmod +x program.sh
CAIRN_TEST_PROGRAM=$work/program.sh "$CAIRN_BINARY" launch --ranks 2 -- "${small[@]}" >launch.out 2>&1 &
launcher=$!
wait_until "$hang_limit" holds launch.out 'meets the others at served' || complain "launch: rank 0 does not come: $(cat launch.out)"
stop_launcher "a rank that never comes"
cat >ssh.sh <<'END2'
#!/usr/bin/env bash
touch asked
exec sleep 1000
END2
chmod +x ssh.sh
printf 'nowhere\n' >hosts
ln -s "$work" "/tmp/cairn-test-$$" # CAIRN_SSH is words without spaces
CAIRN_SSH=/tmp/cairn-test-$$/ssh.sh "$CAIRN_BINARY" launch --hosts hosts -- "${small[@]}" >launch.out 2>&1 &
launcher=$!
wait_until "$hang_limit" test -e asked || complain "no agent was started"
rm -f "/tmp/cairn-test-$$"
stop_launcher "a host that does not answer"
finish
