#!/usr/bin/env bash
# Started by hand: whether two builds do the same to the last bit. Small runs of every kind (same.cases): losses, weights,
# checkpoints, predictions, plans and what is printed, without times and measured memory.
set -euo pipefail

usage() {
    cat <<'END'
same.sh OLD NEW [CASE...]                  runs the cases with both and compares
same.sh --keep DIR PROGRAMS [CASE...]      keeps the results of one in DIR
same.sh --against DIR PROGRAMS [CASE...]   compares with the results in DIR
same.sh --list                             the cases

OLD, NEW and PROGRAMS are folders of built programs: cairn, cairn_cpu.so, cairn_gloo.so, cairn_cuda_host.so. CASE is a
pattern of names ('pipeline-*'); default: all. DIR gets a text for each case, and the path of PROGRAMS, which must stay:
some cases begin with the old programs and go on with the new ones. Another CPU may have other bits.
JOBS is the number of cases that run at once (2); KEEP=1 leaves the folders of all runs. Exit code: 0 equal, 1 a case
differs, 2 usage.
END
}

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd) way=${1:-}
# shellcheck source=bench/same_runs.sh
source "$root/bench/same_runs.sh"

# ---- what is compared ----

# plainly SIDE: lines "file:text" without what differs from run to run: times, rates, measured memory, folders, this host
plainly() {
    sed -E -e "s#$work/$1#WORK#g; s#${programs[$1]}#PROGRAMS#g; s#$root/#ROOT/#g; s#\<$HOSTNAME\>#HOST#g" -e '
        /^([^:]*\/)?(metrics|ranks|faults|launches|starts|audit|run)\.jsonl?:/ {
            s/"(time|started|hosts?|folder|command|job|bubble|filled|([a-z]*_)?peak_bytes|seconds|switches|own_s|[a-z_]+_s)": ("[^"]*"|\[[^]]*\]|[^,}]*)/"\1": -/g
        }
        /^[^:]*(ranks|starts).jsonl:/ s/"steps?": [0-9]*/"step": -/
        /^said/ {
            s/[0-9.e+-]+ (seq\/s)/- \1/g; s/(texts in) [^,]*/\1 -/; s/ (seq\/s|tokens\/s|mem|eta)=[^ ]*/ \1=-/g; s/peak memory [^;]*/peak memory -/
            s/(process|peak)( +)[0-9.]+ MiB(   .program.*)?$/\1\2-/; s/[0-9.]+ (MiB   of the machine)/- \1/; s/(a peak of|device and) [0-9.]+ MiB/\1 -/g; s/(itself) [0-9.]+/\1 -/
            s/(meets the others at|between ranks:|the reader makes|by measured times|the others wait|lost rank|profile of . steps:|, in |seq.*\/s  |measured peak).*/\1 -/
            /waits for rank 0 at/d; s/[0-9.]+ GB are free/- free/; s/(planned peak memory.*) .*/\1/
        }
        /work\.csv:/ s/,[^,]*,[^,]*$//
        /trace[^:]*\.json:/ { /"cat": "(host|work)"/d; s/"(ts|dur)": [^,}]*/"\1": -/g }
        /swept[^:]*\.csv:/ s/(([^,]*,){6}).*/\1/
        /drawn\.svg:/!{ /\.(html|svg):/ { /<(path|text|rect)|class="left"/d; s/[0-9.]+/-/g } }'
}

# record SIDE LIST: the lines of all texts below this folder, and digests of all else; LIST becomes a list of the files
record() {
    local texts='\.(json|jsonl|csv|svg|html)$|^said|^ended$|eval_results.txt$' others='(^|/)(tokenizer|vocab)[^/]*$'
    find . -type f ! -name '.lock' ! -name '.run' ! -name 'events.out.*' ! -name kernels.csv ! -path './memory/*' \
        ! -name errors ! -name '*.log' -printf '%P\n' | LC_ALL=C sort >"$2"
    { grep -vE "$texts" "$2" || true; grep -E "$others" "$2" || true; } | sort -u | xargs -rd '\n' md5sum --
    grep -vE "$others" "$2" | grep -E "$texts" | xargs -rd '\n' grep -H '' -- | plainly "$1"
    rm "$2"
}

# one SIDE NAME COMMANDS: a case with the programs of this side
one() {
    trap 'jobs -p | xargs -r kill 2>/dev/null' EXIT
    export XDG_CACHE_HOME=$work/$1/cache
    cairn=${programs[$1]}/cairn runs=0
    mkdir -p "$work/$1/$2/memory"
    cd "$work/$1/$2"
    eval "$3" 2>errors || echo "failed: $(tail -n 1 errors)" >>ended
    record "$1" "$work/$1/$2.files" >"${records[$1]}/$2"
    [ "$2" = data ] || [ -n "${KEEP:-}" ] || rm -r "${work:?}/$1/$2"
}

# cases: those of same.cases, each a line NAME|COMMANDS
cases() {
    grep -v '^#' "$root/bench/same.cases" | awk '{
        at = index($0, " | "); n = split(substr($0, 1, at - 1), words, " ")
        for (i = n > 1 ? 2 : 1; i <= n; i++) {
            line = words[1] "|" substr($0, at + 3); word = name = words[i]
            gsub(/\+/, " ", word); gsub(/[^A-Za-z0-9]+/, "-", name)
            if (n > 1) { sub("@", name, line); gsub("@", word, line) }
            print line
        }
    }'
}

case $way in
'' | -h | --help) usage && exit 0 ;;
--list) cases | cut -d '|' -f 1 && exit 0 ;;
--keep) sides=(old) ;;
--against) sides=(new) ;;
*) sides=(old new) && set -- "" "$@" ;;
esac
if [ $# -lt 3 ] || [ ! -x "$3/cairn" ] || { [ "$way" != --keep ] && [ ! -d "$2" ]; }; then usage >&2 && exit 2; fi
work=$(mktemp -d /dev/shm/cairn-same.XXXXXX 2>/dev/null || mktemp -d)
trap 'set +e; jobs -p | xargs -r kill 2>/dev/null; wait; [ -n "${KEEP:-}" ] && echo "kept: $work" || rm -rf -- "$work"' EXIT
declare -A programs records=([old]=$work/records.old [new]=$work/records.new)
case $way in
--keep)
    mkdir -p "$2"
    records[old]=$(cd "$2" && pwd) programs[old]=$(cd "$3" && pwd)
    echo "${programs[old]}" >"$2/programs"
    ;;
--against) records[old]=$(cd "$2" && pwd) programs[old]=$(<"$2/programs") programs[new]=$(cd "$3" && pwd) ;;
*) programs[old]=$(cd "$2" && pwd) programs[new]=$(cd "$3" && pwd) ;;
esac
shift 3
patterns=("${@:-*}") names=(data)
while IFS= read -r name; do unset "$name"; done < <(
    compgen -v | grep -E '^(SLURM_|PBS_|PE_|PMI|OMPI_|SGE_|JOB_ID$|NSLOTS$|RANK$|WORLD_SIZE$|MASTER_|CAIRN_)'
)
export OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES='' CAIRN_PEER_TIMEOUT=1h CAIRN_CONNECT_TIMEOUT=1h CAIRN_TEST_SURVIVE=1h \
    CAIRN_TEST_CUDA_HOST_DEVICE=64 CAIRN_TEST_CUDA_HOST_GPUS=4 CAIRN_TEST_CUDA_HOST_FAR=1

# each NAME COMMANDS: on each side, in the background
each() {
    local side running
    for side in "${sides[@]}"; do
        while mapfile -t running < <(jobs -pr) && [ "${#running[@]}" -ge "${JOBS:-2}" ]; do wait -n || true; done
        (one "$side" "$@") &
    done
}

mkdir -p "${records[@]}"
each data prepare
wait
while IFS='|' read -r name commands; do
    for pattern in "${patterns[@]}"; do
        # shellcheck disable=SC2053 # a pattern
        [[ $name == $pattern ]] || continue
        names+=("$name")
        each "$name" "$commands"
        break
    done
done < <(cases)
wait
[ "${#names[@]}" -gt 1 ] || { echo "same.sh: no case has this name; see --list" >&2 && exit 2; }
[ "$way" != --keep ] || { echo "${#names[@]} cases kept in ${records[old]}" && exit 0; }
differ=()
for name in "${names[@]}"; do
    cmp -s "${records[old]}/$name" "${records[new]}/$name" && continue
    differ+=("$name")
    echo "$name: < old, > new"
    diff "${records[old]}/$name" "${records[new]}/$name" | cut -c 1-300 | grep -m 8 '^[<>]' || true
done
echo "${#names[@]} cases, ${#differ[@]} differ: ${differ[*]}"
[ "${#differ[@]}" -eq 0 ]
