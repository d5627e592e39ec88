#!/usr/bin/env bash
# `cmake --install` and moving build/cairn: the program starts anywhere, with its backend or without.
set -euo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

build=${CAIRN_TEST_BUILD_DIR:-$source_dir/build}
expect 0 cmake --install "$build" --prefix "$work/a prefix"
[ -x "a prefix/bin/cairn" ] || complain "there is no bin/cairn"

make_tiny_bert tiny
mkdir elsewhere
cd elsewhere
# run PROGRAM BACKEND: a step of training.
# shellcheck disable=SC2317 # called by `expect`
run() {
    "$1" glue --backend "$2" --model-config ../tiny/config.json --vocab ../tiny/vocab.txt --data-dir "$sample" \
        --do-train --max-steps 1 --batch-size 4 --threads 1 --resume never --output-dir out
}

if [ -e "$build/cairn_cpu.so" ]; then
    has_file "../a prefix/lib/cairn/cairn_cpu.so"
    expect 0 run "../a prefix/bin/cairn" cpu
    mkdir "../moved to"
    cp "$build/cairn" "$build/cairn_cpu.so" "../moved to/"
    expect 0 run "../moved to/cairn" cpu
    expect 0 run "../moved to/cairn" auto
    ! grep -q 'using ref' <<<"$output" || complain "auto does not take the cpu backend beside the program"
    (PATH="$work/moved to:$PATH" && expect 0 run cairn cpu && exit "$failures") || complain "not found through PATH"
    ln -s "../moved to/cairn" link
    expect 0 run ./link cpu
else
    echo "skipped: the cpu backend was not built; ref alone is tested"
fi

# The program alone.
mkdir ../alone
cp "$build/cairn" ../alone/
expect 0 run ../alone/cairn auto
says warning "using ref"
expect 0 run ../alone/cairn ref
expect 2 run ../alone/cairn cpu
says cairn_cpu.so
# A file that is not a module.
echo nonsense >../alone/cairn_cpu.so
expect 0 run ../alone/cairn auto
says "using ref"
finish
