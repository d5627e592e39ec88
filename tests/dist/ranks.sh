# Helpers for tests that start ranks by hand on this machine, on top of lib.sh.
# shellcheck shell=bash
# shellcheck source=tests/dist/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=tests/dist/rendezvous.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/rendezvous.sh"

if [ ! -e "${CAIRN_TEST_BUILD_DIR:-$source_dir/build}/cairn_gloo.so" ]; then
    echo "skipped: built without Gloo" && exit 77
fi
export XDG_CACHE_HOME=$work/cache # of measured rates

# $threads: of each rank, 1 where it is not set.
# meet N: a new place to meet. one RANK N LOG COMMAND...: one of N ranks, in the background; its output goes to LOG.RANK.
meet() {
    serve_rendezvous "$1"
    ranks=()
}
one() {
    local r=$1 n=$2 log=$3
    shift 3
    RANK=$r WORLD_SIZE=$n LOCAL_RANK=$r LOCAL_WORLD_SIZE=$n CAIRN_RENDEZVOUS=$met_at CAIRN_JOB_TOKEN=$token \
        timeout "$hang_limit" "$CAIRN_BINARY" "$@" --threads "${threads:-1}" --verbose >"$log.$r" \
        2>&1 </dev/null &
    ranks[r]=$!
}

# start N LOG COMMAND...: N ranks. Their ids are in ${ranks[@]}.
start() {
    local n=$1 r
    meet "$n"
    for ((r = 0; r < n; r++)); do one "$r" "$@"; done
}

# ended CODE: all ranks end with this exit code.
ended() {
    local wanted=$1 pid code
    for pid in "${ranks[@]}"; do
        code=0
        wait "$pid" || code=$?
        [ "$code" -eq "$wanted" ] || complain "a rank ended with $code instead of $wanted (line ${BASH_LINENO[0]})"
    done
}

# kill_all: stops all first, for a rank that lives a moment longer saves what it has of the others.
kill_all() {
    local pid pids
    mapfile -t pids < <(pgrep -P "$(IFS=, && echo "${ranks[*]}")")
    kill -STOP -- "${pids[@]}"
    for pid in "${pids[@]}"; do wait_until "$hang_limit" stopped "$pid" || complain "process $pid does not stop"; done
    kill -KILL -- "${pids[@]}"
    for pid in "${ranks[@]}"; do wait "$pid" 2>/dev/null || true; done
}

# lose RANK: kills one of two ranks itself, not the `timeout` around it; the other must end with 77.
lose() {
    local other=$((1 - $1)) code=0
    kill -KILL -- "$(pgrep -P "${ranks[$1]}")"
    wait "${ranks[other]}" 2>/dev/null || code=$?
    [ "$code" -eq 77 ] || complain "rank $other ended with $code instead of 77 after rank $1 was killed"
    wait "${ranks[$1]}" 2>/dev/null || true
}

# digests LOG N: of the weights, as each of N ranks had them at the end.
digests() {
    local r
    for ((r = 0; r < $2; r++)); do sed -n "s/.*the weights' digest is //p" "$1.$r" | tail -n 1; done
}

# equal_ranks LOG N: all ended with the same weights.
equal_ranks() {
    [ "$(digests "$1" "$2" | wc -l) $(digests "$1" "$2" | sort -u | wc -l)" = "$2 1" ] ||
        complain "$1: the ranks ended with different weights: $(digests "$1" "$2" | tr '\n' ' ')"
}

# same DIR DIR STEP [kfac]: the weights of both runs, which ended with STEP, and their moments and inverses, to the last
# bit.
same() {
    local file
    for file in model.safetensors "checkpoint-$3/optimizer.safetensors" ${4:+"checkpoint-$3/$4.safetensors"}; do
        cmp "$1/$file" "$2/$file" || complain "$2 has another $file than $1"
    done
}

# near DIR DIR: the same losses, step by step, to rounding.
near() {
    paste <(losses "$1") <(losses "$2") |
        awk -v a="$1" -v b="$2" 'NF != 2 || ($1 - $2) ^ 2 > (2e-4 * $1) ^ 2 { print a, b, "step", NR ":", $0; bad = 1 }
             END { exit bad || NR == 0 }' || complain "$1 and $2 differ by more than rounding"
}
