#!/usr/bin/env bash
# bench/plans.sh: what it measures of a tiny model without PyTorch, its table and its picture, and those of a recorded file.
set -euo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

plans=$source_dir/bench/plans.sh build=${CAIRN_TEST_BUILD_DIR:-$source_dir/build}
expect 2 "$plans" --precision fp8
says "expected bf16 or fp32, found 'fp8'"
expect 2 "$plans" --only base-64
says "found 'base-64'"
printf 'kept\n' >there.tsv
expect 2 "$plans" --out there.tsv
says "this one exists"
if ! python3 -c '' 2>/dev/null; then
    echo "skipped: no python3" && exit 77
fi

# The fastest of three rounds; memory is the peak less libraries.
{
    printf '# a date, a machine\n# PyTorch 2.15\n'
    printf 'shape\tround\tgroup\tname\tbudget_mib\tstep_s\tresident_mib\tother_mib\tbatch_mib\tplanned_s\tbound_s\n'
    printf '# shape\tbase\tbert-base, 8 × 128 tokens\n'
    batch=900.0 # measured once
    for round in 1 2 3; do
        printf 'base\t%s\tcairn-auto\tfull×10 none×2\t2070\t1.%s\t2170.0\t30.0\t45.0\t1.6\t1.5\n' "$round" "$round"
        printf 'base\t%s\tcairn\tnone\t\t1.%s5\t2390.0\t30.0\t250.0\t\t\n' "$round" "$round"
        printf 'base\t%s\tpytorch\tevery:2\t\t2.4\t3000.0\t400.0\t%s\t\t\n' "$round" "$batch"
        printf 'base\t%s\tpytorch\ton\t\t3.6\t2100.0\t400.0\t%s\t\t\n' "$round" "$batch"
        batch=
    done
    printf '# failed\tbase\tpytorch-compiled\tbudget:0\twords of the compiler\n'
} >recorded.tsv
expect 0 "$plans" --draw recorded.tsv
says '**bert-base, 8 × 128 tokens**' '| Cairn, --recompute auto | `full×10 none×2` | 2070 | 1.1 (–1.3) | 3 | 2170 | 2140 | 45 |  | 1.6, 1.5 |' \
    '| Cairn, a policy | `none` |  | 1.15 (–1.35) | 3 | 2390 | 2360 | 250 |  |  |' \
    '| PyTorch, checkpointing | `every:2` |  | 2.4 (–2.4) | 3 | 3000 | 2600 | 900 | 2.18 |  |' \
    '| `on` |  | 3.6 (–3.6) | 3 | 2100 | 1700 | 900 |  |  |' 'words of the compiler'
for text in '>bert-base, 8 × 128 tokens</text>' '<title>full×10 none×2</title>' 'every:2</text>' 'PyTorch, checkpointing</text>' '</svg>'; do
    holds recorded.svg "$text" || complain "'$text' is not in the picture"
done
! holds recorded.svg 'compiled' || complain "the legend has a group without a point"
printf 'base\t1\tcairn\tnone\n' >>recorded.tsv
expect 1 "$plans" --draw recorded.tsv
says "recorded.tsv:18: expected 11 columns"
sed -i '/^base/d' recorded.tsv
expect 1 "$plans" --draw recorded.tsv
says "expected lines of measured steps, found none"

cmake --build "$build" --target help >targets 2>/dev/null
if ! grep -q '\bbackend_cpu\b' targets; then
    echo "skipped: this build has no cpu backend" && [ "${failures:-0}" -eq 0 ] && exit 77
fi
printf '{"model_type": "bert", "vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 256, "max_position_embeddings": 64}\n' >tiny.json
expect 0 env -u PEER_PYTHON "$plans" --build "$build" --out tiny.tsv --shape "tiny:$work/tiny.json:32:64" --rounds 1 --precision fp32
says "PyTorch is left out: PEER_PYTHON is not set"
expect 0 "$plans" --draw tiny.tsv
says '**tiny, 32 × 64 tokens**' '| Cairn, a policy | `every:2` |' '| Cairn, --recompute auto | `'
awk -F'\t' '$3 ~ /^cairn/ { n++; auto += $3 == "cairn-auto"; bad += !($6 > 0 && $7 > $8 && $8 > 0 && $9 > 0) } $3 == "cairn-auto" { bad += !($5 > 0 && $10 >= $11 && $11 > 0) }
            END { exit !(n == auto + 6 && auto >= 2 && !bad) }' tiny.tsv || complain "$(cat tiny.tsv)"
awk -F'\t' '$3 == "cairn" { kept[$4] = $9 } END { exit !(kept["none"] > kept["lean"] && kept["lean"] > kept["ffn"]) }' tiny.tsv ||
    complain "a policy that keeps less takes as much: $(cat tiny.tsv)"
finish
