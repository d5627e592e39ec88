#!/usr/bin/env bash
# MLPerf's data for BERT: its reference text to shards, with its settings.
set -euo pipefail
# shellcheck source=hpcai_scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../../../hpcai_scripts/common.sh"

usage() {
    cat <<'END'
prepare.sh --text DIR --vocab FILE --output-dir DIR [--shards N] [any flag of `cairn shards`]...

Makes training shards in DIR/train and evaluation shards in DIR/eval, from MLPerf's reference text: part-* and eval.txt,
a sentence per line. Settings are the rules': 512 tokens, 76 masked positions, each document 10 times, seed 12345. A
stopped run resumes with the same command. Flags override the settings.
  --shards    about as many training shards (default 4320)
  --layout    packed (default: rows of up to three sequences), compact or fixed; training is the same with each

    ./tasks/pretrain/mlperf/prepare.sh --text results4/ --vocab vocab.txt --output-dir mlperf-data/

Exit codes: 0 done, 1 failed, 2 usage, 75 stopped (run again to resume), 79 a finished file has changed.
END
}

text='' output='' shards=4320 rounds=10 flags=()
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help) usage && exit 0 ;;
    --*=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
    esac
    case $1 in
    --text | --shards | --output[-_]dir | --dupe[-_]factor) [ $# -ge 2 ] || die 2 "$1 needs a value" ;;
    esac
    case $1 in
    --text) text=$2 && shift ;;
    --shards) shards=$2 && shift ;;
    --output[-_]dir) output=$2 && shift ;;
    --dupe[-_]factor) rounds=$2 && shift ;;
    *) flags+=("$1") ;;
    esac
    shift
done
[ -n "$text" ] || die 2 "give --text: the folder with part-* and eval.txt"
[ -n "$output" ] || die 2 "give --output-dir"
[[ $rounds =~ ^[1-9][0-9]*$ ]] || die 2 "--dupe-factor $rounds: expected a number above 0"
if ! [[ $shards =~ ^[1-9][0-9]*$ ]] || [ "$shards" -lt "$rounds" ]; then
    die 2 "--shards $shards: expected $rounds at least, one for each use of a document (--dupe-factor)"
fi
parts=("$text"/part-*)
[ -e "${parts[0]}" ] || die 2 "$text has no part-*; expected MLPerf's text, part-00000-of-00500 and on"
[ -e "$text/eval.txt" ] || die 2 "$text has no eval.txt, the articles that are held out"
official=2a220f790517261547b1b45ed3ada07a
[ "$(md5sum <"$text/eval.txt")" = "$official  -" ] ||
    say "$text/eval.txt is not the rules' (MD5 $official): results do not compare with others'"
bytes=$(cat -- "${parts[@]}" | wc -c)
size=$((bytes / (shards / rounds) + 1))
[ "$size" -ge 4096 ] || size=4096

find_cairn
settings=(--max-seq-length 512 --predictions 76 --mask-fraction 0.15 --short-seq-prob 0.1 --seed 12345 --layout packed
    --masking static --dupe-factor "$rounds")
list=$(IFS=, && echo "${parts[*]}")
"$cairn" shards "${settings[@]}" --shard-size "${size}B" "${flags[@]}" --input "$list" --output-dir "$output/train"
exec "$cairn" shards "${settings[@]}" "${flags[@]}" --input "$text/eval.txt" --output-dir "$output/eval"
