# What the tests of this folder share. Each is run by ctest with CAIRN_BINARY and CAIRN_SOURCE_DIR set, and works in a
# directory of its own whose name has a space in it.
# shellcheck shell=bash

source_dir=${CAIRN_SOURCE_DIR:-$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)}
export CAIRN_BINARY=${CAIRN_BINARY:-$source_dir/build/cairn}
# shellcheck disable=SC2034 # used by the tests
scripts=$source_dir/hpcai_scripts sample=$source_dir/tasks/glue/sample
unset BERT_DIR GLUE_DIR RESULTS_DIR CAIRN_BACKEND_DIR CDPATH

# Ranks wake each other with every message. As a batch process a woken one does not take the processor from one that holds
# a lock of Gloo, whose other thread would spin on it: a fifth of the system time.
chrt --batch --pid 0 $$ >/dev/null 2>&1 || true

work=$(mktemp -d "${TMPDIR:-/tmp}/cairn test XXXXXX")
trap 'rm -rf -- "$work"' EXIT
cd -- "$work" || exit 1

failures=0
complain() {
    printf 'FAILED: %s\n' "$*"
    failures=$((failures + 1))
}

# expect CODE COMMAND...: runs it; its output is in $output, stdout alone in $work/.stdout.
expect() {
    local code=0 wanted=$1
    shift
    "$@" >"$work/.stdout" 2>"$work/.stderr" </dev/null || code=$?
    output=$(cat "$work/.stdout" "$work/.stderr")
    if [ "$code" -ne "$wanted" ]; then
        complain "exit code $code instead of $wanted: $*"
        printf '%s\n' "$output" | tail -n 20
    fi
}

# says TEXT...: each is in the output of the last command.
says() {
    local text
    for text in "$@"; do
        grep -qF -- "$text" <<<"$output" || { complain "'$text' is not in:" && printf '%s\n' "$output" | tail -n 20; }
    done
}

has_file() {
    local path
    for path in "$@"; do [ -s "$path" ] || complain "$path is missing or empty"; done
}

# quick_or_deep QUICK DEEP: the second under `test.sh deep`.
quick_or_deep() { if [ -n "${CAIRN_TEST_DEEP:-}" ]; then echo "$2"; else echo "$1"; fi; }

# ---- waiting: without a process, for a poll that forks costs more than the program it waits for ----

# shellcheck disable=SC2034 # used by the tests
hang_limit=600 # seconds; ends a test that hangs, and decides nothing else

export NAP=$source_dir/tests/scripts/nap.sh # for programs of tests
# shellcheck source=tests/scripts/nap.sh
source "$NAP"
nap_s=0.01 # a test whose conditions start processes sets more

# wait_until SECONDS COMMAND...: true as soon as the command is.
wait_until() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || return 1
        nap "$nap_s"
    done
}

# holds FILE TEXT: the file has the text in it.
holds() {
    local whole=
    [ -s "$1" ] || return 1
    IFS= read -rd '' whole <"$1" || true
    [[ $whole == *"$2"* ]]
}

# count_lines FILE: sets `lines`; 0 where the file is missing.
count_lines() {
    local rows_read=()
    [ ! -s "$1" ] || mapfile rows_read <"$1"
    lines=${#rows_read[@]}
    if [ "$lines" -gt 0 ] && [[ ${rows_read[-1]} != *$'\n' ]]; then lines=$((lines - 1)); fi
}

# steps_in DIR; reached DIR N: steps that a run has made.
steps_in() {
    local lines
    count_lines "$1/metrics.jsonl"
    echo "$lines"
}
reached() {
    local lines
    count_lines "$1/metrics.jsonl"
    [ "$lines" -ge "$2" ]
}

# A tiny model makes its steps in milliseconds, and would make the last one before a test that waits for the processor
# kills a rank. slowly: from here on a step takes 50 ms or more. quickly: no more.
export CAIRN_TEST_SLOW=$work/slow
slowly() { touch "${CAIRN_TEST_SLOW}0"; }
quickly() { rm -f "${CAIRN_TEST_SLOW}0"; }

# True if process $1 exists and is not a zombie alone: while other threads of one that was killed end, it holds its files
# and locks.
alive() {
    local stat threads
    { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
    [[ ${stat##*) } == Z* ]] || return 0
    threads=("/proc/$1/task/"*)
    [ ${#threads[@]} -gt 1 ]
}
gone() { ! alive "$1"; }
# True if process $1 was stopped by a signal.
stopped() {
    local stat
    { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
    [[ ${stat##*) } == T* ]]
}

# For tests whose result must not depend on a time-out of the product: with the options `patient` and after `patiently`
# none passes. One that freezes a rank or cuts it off ends that time-out by `silence`.
patient=(--peer-timeout 1h --connect-timeout 1h)
patiently() {
    export CAIRN_TEST_SURVIVE=1h CAIRN_TEST_SPARE_WAIT=1h CAIRN_TEST_LOCK_WAIT=1h CAIRN_TEST_SILENT=$work/silent
}

# silence BY OF...: rank BY has heard nothing of ranks OF for the peer timeout. heard: no rank is silent any more.
silence() {
    local r
    for r in "${@:2}"; do : >"$work/silent$1-$r"; done
}
heard() { rm -f -- "$work"/silent*; }

# ---- cases that wait, at the same time ----
# beside COMMAND [ARGUMENT]...: runs it in the background as a test of its own: $work is a new folder, $PWD too.
# together: waits for all of these, and shows the output of those that failed.
besides=()
beside() {
    local where=$work/case${#besides[@]}
    mkdir "$where"
    (
        trap 'jobs -p | xargs -r kill -9 2>/dev/null' EXIT
        export WORK=$where
        work=$where failures=0
        cd -- "$where" || exit 1
        "$@"
        exit $((failures > 0))
    ) >"$where/.output" 2>&1 &
    besides+=("$! $*")
}
together() {
    local i pid what
    for i in "${!besides[@]}"; do
        read -r pid what <<<"${besides[i]}"
        wait "$pid" || { complain "$what:" && cat "$work/case$i/.output"; }
        rm -rf -- "$work/case$i"
    done
    besides=()
}

# The losses of a run, in the digits they were written with.
losses() { sed -n 's/.*"loss": *\([^,}]*\).*/\1/p' "$1/metrics.jsonl"; }

# json_number FILE KEY
json_number() { sed -n "s/.*\"$2\": *\\([-+0-9.eE]*\\).*/\\1/p" "$1" | head -n 1; }

# make_tiny_config FILE [WORDS [LAYERS]]: a BERT that trains in no time; 600 words and 2 layers.
make_tiny_config() {
    cat >"$1" <<END
{"vocab_size": ${2:-600}, "hidden_size": 32, "num_hidden_layers": ${3:-2}, "num_attention_heads": 2,
 "intermediate_size": 64, "max_position_embeddings": 128, "type_vocab_size": 2, "hidden_act": "gelu",
 "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "initializer_range": 0.02, "layer_norm_eps": 1e-12}
END
}

# make_tiny_bert DIR [LAYERS]: the same for the sample's words, which are in DIR/vocab.txt.
make_tiny_bert() {
    mkdir -p -- "$1"
    "$CAIRN_BINARY" vocab --input "$sample/train.tsv" --size 600 --output "$1/vocab.txt" 2>/dev/null
    make_tiny_config "$1/config.json" "$(wc -l <"$1/vocab.txt")" "${2:-2}"
}

# films: 40 labelled rows in ./rows, a vocabulary of their words and a BERT of 4 layers for them, as config.json.
films() {
    local i word label
    cat >config.json <<'END'
{"vocab_size": 14, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 64,
 "max_position_embeddings": 32, "type_vocab_size": 2}
END
    printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' good bad film plot a the , '"' line >vocab.txt
    mkdir data
    for ((i = 0; i < 40; i++)); do
        word=good label=positive
        ((i % 3)) || { word=bad label=negative; }
        echo "$label,the $word film a plot"
    done >rows
}

# Text and vocabulary of the bundled dump: text/, vocab.txt. Ends the test where this build cannot make shards.
make_sample_text() {
    dump=$source_dir/tasks/pretrain/sample/sample.xml
    expect 0 "$CAIRN_BINARY" wiki --input "$dump" --output-dir text
    if grep -q 'built without expat' <<<"$output"; then echo "skipped: built without expat" && exit 77; fi
    expect 0 "$CAIRN_BINARY" vocab --input text --size 600 --output vocab.txt
    "$CAIRN_BINARY" shards --input text --vocab vocab.txt --output-dir .probe 2>"$work/.stderr" || true
    if grep -q 'built without HDF5' "$work/.stderr"; then echo "skipped: built without HDF5" && exit 77; fi
}

finish() {
    [ "$failures" -eq 0 ] || printf '%d checks failed\n' "$failures"
    exit $((failures > 0))
}
