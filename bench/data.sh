#!/usr/bin/env bash
# How fast pretraining data is made: a dump to text, text to shards, per core and with more threads, with peak memory, and
# what English Wikipedia would take at these rates.
set -euo pipefail
# shellcheck source=hpcai_scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../hpcai_scripts/common.sh"

usage() {
    cat <<'END'
data.sh [DUMP [VOCAB [THREADS]]]      (default: shared data's dump and BERT's vocabulary, beside this folder; threads 1,2)

DUMP is a piece of a MediaWiki dump, plain or bz2; it is used COPIES times over, so that there is something to measure.
  COPIES       default 24
  BUILD        a folder with cairn, bench_wiki and bench_shards (default: build, which is built here)
Rates are of one second, and of one second of processor time: the latter hold on a busy machine too. Needs bzip2 and GNU time.
END
}

case ${1:-} in -h | --help) usage && exit 0 ;; esac
data=$cairn_root/../shared/data
dump=${1:-$(find "$data/wikipedia" -name 'enwiki*.bz2' | head -n 1)} vocab=${2:-$data/vocab/bert-base-uncased-vocab.txt}
threads=${3:-1,2} copies=${COPIES:-24} folder=${BUILD:-$cairn_root/build}
[ -r "$dump" ] || die 2 "there is no dump; name one (see --help)"
if [ -z "${BUILD:-}" ]; then
    find_cairn
    cmake --build "$folder" --target bench >/dev/null
fi
cairn=$folder/cairn
[ -x /usr/bin/time ] || die 2 "install GNU time (/usr/bin/time)"
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT

# measured SIZE COMMAND...: runs it; one line with MB of SIZE per second, per second of processor time, and peak memory.
# Sets `rate` to the second.
measured() {
    local size=$1 wall user system peak
    shift
    /usr/bin/time -f '%e %U %S %M' -o "$work/times" "$@" >"$work/log" 2>&1 ||
        die 1 "failed: $* ($(tail -n 1 "$work/log"))"
    read -r wall user system peak <"$work/times"
    rate=$(awk -v n="$size" -v u="$user" -v s="$system" 'BEGIN { printf "%.1f", n / (u + s) / 1e6 }')
    awk -v n="$size" -v w="$wall" -v r="$rate" -v p="$peak" \
        'BEGIN { printf "%.1f MB/s, %s MB/s per second of processor time, peak %.0f MiB\n", n / w / 1e6, r, p / 1024 }'
}

date -u +%Y-%m-%d
lscpu | grep -E '^(Model name|CPU\(s\)|L2 cache|L3 cache)'
uptime

say "== XML to text: $copies times $(basename -- "$dump") =="
case $dump in *.bz2) bzcat -- "$dump" ;; *) cat -- "$dump" ;; esac >"$work/one.xml"
awk -v body="$work/body" '/<page>/ { pages = 1 } !pages { print } pages && !/<\/mediawiki>/ { print >body }' "$work/one.xml" \
    >"$work/all.xml"
for _ in $(seq "$copies"); do cat "$work/body"; done >>"$work/all.xml"
echo '</mediawiki>' >>"$work/all.xml"
"$folder/bench_wiki" "$work/all.xml" --threads "$threads" --passes 1
"$cairn" wiki --input "$work/all.xml" --output-dir "$work/text" 2>"$work/log" || die 1 "$(cat "$work/log")"
xml=$(stat -c %s "$work/all.xml") text=$(cat "$work"/text/part-* | wc -c)
say "== the same, packed as bz2 =="
bzip2 -k "$work/all.xml"
"$folder/bench_wiki" "$work/all.xml.bz2" --threads "$threads" --passes 1 | tee "$work/bz2"
wiki_rate=$(awk '/^whole command/ && !rate { rate = $6 } END { print rate }' "$work/bz2")
printf 'bzip2 alone (libbz2): '
measured "$xml" bzip2 -t "$work/all.xml.bz2"

say "== text to vocabulary (one thread) =="
measured "$text" "$cairn" vocab --input "$work/text" --output "$work/vocab.txt"
vocab_rate=$rate

say "== text to shards: $text bytes, dupe factor 1 =="
for length in 128 512; do
    for n in ${threads//,/ }; do
        printf 'length %s, %s threads: ' "$length" "$n"
        measured "$text" "$cairn" shards --input "$work/text" --vocab "$vocab" --max-seq-length "$length" --threads "$n" \
            --output-dir "$work/shards-$length-$n"
        if [ "$n" = "${threads%%,*}" ] && [ "$length" = 128 ]; then shards_rate=$rate; fi
    done
    grep -h 'sequences,' "$work/log" | sed 's/^.*: //'
done

say "== the loader, length 128 =="
"$folder/bench_shards" "$work/shards-128-${threads%%,*}" "$vocab" 128 256 3

say "== English Wikipedia (90 GB of XML as bz2, 16 GB of text) on 32 cores, at the rates per second of processor time =="
awk -v w="$wiki_rate" -v s="$shards_rate" -v v="$vocab_rate" 'BEGIN {
    printf "XML to text %.1f min, vocabulary %.1f min (one thread; none with one of others), shards of one length %.1f min\n",
        90e3 / w / 32 / 60, 16e3 / v / 60, 16e3 / s / 32 / 60 }'
uptime
