#!/usr/bin/env bash
# bench/embed.sh: the planned cost of 65536 pairs, the steps that it measures of a tiny model, and the peer's figures.
set -euo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

embed=$source_dir/bench/embed.sh
expect 2 "$embed" many
says "expected numbers of pairs, rounds and minutes, found 'many'"
if ! [ -x /usr/bin/time ]; then
    echo "skipped: no GNU time" && exit 77
fi

# A peer that takes 0.1 s a pair, twice as long with the cached loss, and three times as long in the first round.
cat >peer <<'END'
#!/usr/bin/env bash
times=1
while [ $# -gt 0 ]; do
    case $1 in
    -c) echo 'a peer' && exit ;;
    --pairs) rows=$(($(wc -l <"$2") - 1)) ;;
    --batch) batch=$2 ;;
    --mini-batch) times=2 mini=$2 ;;
    esac
    shift
done
[ "$rows" -ge "$batch" ] && [ "${mini:-4}" -eq 4 ] || exit 1
echo >>calls
[ "$(wc -l <calls)" -gt 2 ] || times=$((3 * times))
printf '{"step_s": %d.%d}\n' $((times * batch / 10)) $((times * batch % 10))
END
chmod +x peer
printf '{"model_type": "bert", "vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 256, "max_position_embeddings": 64}\n' >tiny.json
expect 0 env CONFIG=tiny.json PEER_PYTHON=./peer "$embed" 4 2
says ', a peer' '| sentence-transformers, fp32 | 4 | 100.00 (100.00–300.00) | 1.00 |' \
    '| sentence-transformers, fp32 | 64 | 200.00 (200.00–600.00) | 2.00 |'
for row in 'fp32 | 4' 'fp32 | 64' 'bf16 | 4' 'bf16 | 64'; do says "| Cairn, $row | "; done
awk -F'|' '/^[|] Cairn/ { n++; bad += !($4 + 0 > 0 && $5 + 0 > 0 && $6 + 0 > 0) } END { exit !(n == 4 && !bad) }' .stdout || complain "$output"
# The goal: at most 1.35 times the time per pair of the largest batch in one micro-batch, within 16 GiB.
awk '/^h100/ { n++; times = peak = 0
               for (i = 2; i <= NF; i++) { if ($i ~ /^times/) times = $(i - 1); if ($i == "peak") peak = $(i + 1) }
               bad += !(times > 1 && times <= 1.35 && peak > 0 && peak <= 16384) }
     END { exit !(n == 1 && !bad) }' .stdout || complain "$output"
expect 1 env CONFIG=tiny.json PEER_PYTHON=./peer "$embed" 3 1 # not a mini-batch that this peer takes
says "embed.sh: ./peer: "
finish
