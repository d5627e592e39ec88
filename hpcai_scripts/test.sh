#!/usr/bin/env bash
# Runs all tests.
set -euo pipefail
# shellcheck source=hpcai_scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

usage() {
    cat <<'END'
test.sh [release] [asan] [fuzz] [deep]

Installs missing packages, then builds and runs (default: all three stages)
  release  every test, with the preset `release` in build/
  asan     the tests of C code in one process, and a short run of each task, once more under AddressSanitizer and
           UBSan, in build-asan/; with `deep` those of several ranks too
  fuzz     every libFuzzer target for a few seconds on its seed corpus, in build-fuzz/
The next stage runs even if one fails. The output ends with the reasons of skipped tests, the slowest tests and a table
of the results.
  deep     more rounds of the tests that kill and damage at random, and a minute for each fuzz target; for the stages
           given, or all three
  FUZZ_SECONDS  seconds for each fuzz target (default 2, deep 60)
  TEST_JOBS     parallel tests (default: processors + 2, because many tests wait)
  CAIRN_WERROR  ON: a compiler's warning fails the build (default: ON where CI is set, else as build/ is configured)
Exit codes: 0 all passed, 1 something failed, 2 usage or a package to install by hand, 75 stopped by a signal.
END
}

stages=()
for argument in "$@"; do
    case $argument in
    -h | --help) usage && exit 0 ;;
    release | asan | fuzz) stages+=("$argument") ;;
    deep) export CAIRN_TEST_DEEP=1 FUZZ_SECONDS=${FUZZ_SECONDS:-60} ;;
    *) die 2 "unknown stage '$argument'; expected release, asan, fuzz or deep" ;;
    esac
done
[ ${#stages[@]} -gt 0 ] || stages=(release asan fuzz)
jobs=${TEST_JOBS:-$(($(nproc) + 2))}
werror=${CAIRN_WERROR:-}
[ -n "$werror" ] || [ "${CI:-false}" = false ] || werror=ON
[ -z "$werror" ] || cmake_flags=(-DCAIRN_WERROR="$werror")
unset CAIRN_WERROR # the program takes it for a misspelt option
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive} # several tests share a core, and threads that spin keep others from it

# shellcheck disable=SC2317 # by run_stage
# run_ctest PRESET FOLDER [ctest flags]: its last lines are kept for the summary.
run_ctest() {
    local preset=$1 log=$cairn_root/$2/test.log
    shift 2
    rm -f -- "$(dirname -- "$log")/tests/samples" # of products, which may be those of an earlier build
    (cd -- "$cairn_root" && ctest --preset "$preset" --no-tests=error --parallel "$jobs" "$@") 2>&1 | tee "$log"
}

# shellcheck disable=SC2317 # by run_alone
run_stage() {
    case $1 in
    release) build_preset release build all bench && run_ctest release build ;;
    asan)
        if [ -n "${CAIRN_TEST_DEEP:-}" ]; then
            # Excludes scripts and rules, where sanitizers find nothing new, schedulers, which start slowly, and a memory
            # limit, which the sanitizer's own memory exceeds.
            export ASAN_OPTIONS=${ASAN_OPTIONS:-quarantine_size_mb=256}
            build_preset asan build-asan && run_ctest asan build-asan --label-exclude '^(scripts|rules)$' \
                --exclude-regex '^dist/(slurm|grid_engine|pbs|memory_limit)$'
        else
            build_preset asan build-asan program sim {unit,plan,ops,model,state,data}_programs && run_ctest asan build-asan \
                --tests-regex '^((unit|plan|ops|model|state|data|sim)/|scripts/short_runs$)' --exclude-regex '_emulated_bf16$'
        fi
        ;;
    fuzz)
        build_preset fuzz build-fuzz fuzz &&
            bash "$cairn_root/tests/fuzz/run.sh" "${FUZZ_SECONDS:-2}" "$cairn_root/build-fuzz" 2>&1 |
            tee "$cairn_root/build-fuzz/test.log"
        ;;
    esac
}

# The tests of a stage's log, one per line: passed, failed or skipped; seconds; name.
results() {
    awk '
        /^ *[0-9]+\/[0-9]+ Test +#/ {
            name = $0; sub(/.*#[0-9]+: /, "", name); sub(/ .*/, "", name)
            print / Passed /? "passed" : /\*\*\*Skipped|Disabled/ ? "skipped" : "failed", $(NF - 1), name
        }
        / executions  passed$/ { print "passed", 0, $1 } # of a fuzz target
        /executions  FAILED/ { print "failed", 0, $1 }' "$cairn_root/$1/test.log" 2>/dev/null
}

# counts: of the results on standard input, as "P passed, F failed, S skipped".
counts() {
    awk '{ n[$1]++ } END { printf "%d passed, %d failed, %d skipped", n["passed"], n["failed"], n["skipped"] }'
}

# The reasons of stage $1's skipped and unbuilt tests, one line per reason with its tests.
skipped() {
    local folder=$cairn_root/$2
    # One line for all that needs CUDA.
    sed -n 's/^-- \(.*\(left out\|is not built\|is not tested\).*\)/\1/p' "$folder/build.log" 2>/dev/null |
        awk -v stage="$1" '
            /CUDA|cuda|cudnn/ { cuda = cuda (cuda ? "; " : "") $0; next }
            { printf "  %s: %s\n", stage, $0 }
            END { if (cuda && stage == "release") printf "  %s: %s\n", stage, cuda }'
    awk -v stage="$1" '
        function add(reason) { if (!(seen[reason, name]++)) { tests[reason] = tests[reason] " " name; count[reason]++ } }
        /^[0-9]+\/[0-9]+ Testing: / { name = $3; said = 0 }
        /^skipped/ { sub(/^skipped( in part)?:? */, ""); said = 1; add($0) }
        /^Test Skipped\./ && !said { add("no reason given") }
        END {
            for (reason in tests) {
                split(tests[reason], n, " ")
                more = count[reason] > 4 ? " and " count[reason] - 4 " more" : ""
                printf "  %s: %s: %s %s %s %s%s\n", stage, reason, n[1], n[2], n[3], n[4], more
            }
        }' "$folder/Testing/Temporary/LastTest.log" 2>/dev/null | sed 's/ *$//' | sort
}

require_installed tests
started=$SECONDS
failed=0
summary=() skips=() all=()
for stage in "${stages[@]}"; do
    folder=build
    [ "$stage" = release ] || folder=build-$stage
    rm -f -- "$cairn_root/$folder/test.log" "$cairn_root/$folder/Testing/Temporary/LastTest.log"
    before=$SECONDS
    verdict=passed
    say "== $stage =="
    # run_alone's subshell keeps the stage's settings local. A condition disables `set -e`, hence the && above.
    run_alone run_stage "$stage" || verdict=FAILED
    end_if_stopped "in the stage $stage"
    [ "$verdict" = passed ] || failed=1
    summary+=("$(printf '%-8s %-6s %5d s  %s' "$stage" "$verdict" $((SECONDS - before)) "$(results "$folder" | counts)")")
    mapfile -t -O ${#all[@]} all < <(results "$folder" | sed "s/$/ ($stage)/")
    mapfile -t -O ${#skips[@]} skips < <(skipped "$stage" "$folder")
done

printf '\n'
[ ${#skips[@]} -eq 0 ] || printf '%s\n' "Skipped:" "${skips[@]}" ''
printf '%s\n' "Slowest:"
printf '%s\n' "${all[@]}" | sort -k2,2nr | awk 'NR <= 5 && $2 > 0 { printf "%7d s  %s %s\n", $2, $3, $4 }'
printf '\n'
printf '%s\n' "${summary[@]}"
printf '%-8s %-6s %5d s\n' all "$([ "$failed" -eq 0 ] && echo passed || echo FAILED)" $((SECONDS - started))
printf 'tests: %s\n' "$(printf '%s\n' "${all[@]}" | counts)"
exit "$failed"
