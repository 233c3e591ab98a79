# Sourced by test: stages with a time budget, and a count of single test cases over all of them.
# Every part that can fail ends in add_cases or add_case, so that nothing can fail uncounted.

passed=0
failed=0
skipped=0
failures=()   # one line each, for the end of the run
stage_rows=()  # the table of budgets
stage_name=
stage_started=0
stage_budget=0

# begin_stage NAME BUDGET_SECONDS
begin_stage() {
  stage_name=$1
  stage_budget=$2
  stage_started=$(date +%s)
  say ""
  say "=== $stage_name (budget $stage_budget s)"
}

end_stage() {
  local used=$(($(date +%s) - stage_started)) note=
  [ "$used" -le "$stage_budget" ] || note="  OVER BUDGET"
  stage_rows+=("$(printf '%-28s %6d s of %6d s%s' "$stage_name" "$used" "$stage_budget" "$note")")
  say "=== $stage_name: $used s of $stage_budget s$note"
}

# add_case NAME STATUS [LOG]: one case that is no gtest; status 0 is a pass.
add_case() {
  if [ "$2" -eq 0 ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    failures+=("$stage_name: $1")
    say "FAILED $1"
    [ -z "${3:-}" ] || tail -n 60 "$3" | sed 's/^/    /'
  fi
}

# Counts the cases of one gtest report: "run failed skipped missing_tool".
# A skip whose message says "missing tool" is one that a better equipped machine would run.
count_xml() {
  awk '
    /<testcase / {
      in_case = 1; case_failed = 0
      if ($0 ~ /result="skipped"/) skipped++
      else if ($0 ~ /status="run"/) run++
    }
    /<failure / && in_case && !case_failed { case_failed = 1; failed++ }
    /<skipped/ && /missing tool/ { tool++ }
    /<\/testcase>/ || (/<testcase / && /\/>/) { in_case = 0 }
    END { printf "%d %d %d %d\n", run, failed, skipped, tool }' "$1"
}

# The names of the failed cases of one gtest report, with the first line of what each said.
failed_cases() {
  awk '
    function value(name) {
      if (!match($0, " " name "=\"[^\"]*")) return ""
      return substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3)
    }
    /<testcase / { suite = value("classname"); case_name = value("name"); said = 0 }
    /<failure / && !said++ { print suite "." case_name ": " value("message") }' "$1"
}

# run_one PRESET RESULTS SECONDS NAME: runs one ctest entry; leaves NAME.log, .status and .xml.
run_one() {
  local results=$2 name=$4 status=0 started
  started=$(date +%s)
  GTEST_OUTPUT="xml:$results/$name.xml" ctest --test-dir "build/$1" -R "^$name\$" -FA . \
    --output-on-failure --timeout "$3" >"$results/$name.log" 2>&1 || status=$?
  say "$status" >"$results/$name.status"
  printf '  %-28s %s (%d s)\n' "$name" "$([ $status -eq 0 ] && echo ok || echo FAILED)" \
    "$(($(date +%s) - started))"
}

# run_tests PRESET SECONDS_PER_PROGRAM JOBS [PROGRAM...]: the named test programs of a build, or all
# of them, and their cases. Entries named fetch_* bring files that others read, so they run first,
# and not in the sanitizers' builds.
run_tests() {
  local preset=$1 results names fetched name
  results=$(pwd)/build/$preset/test-results
  rm -rf "$results"
  mkdir -p "$results"
  names=$(ctest --test-dir "build/$preset" -N | sed -n 's/^ *Test *#[0-9]*: //p')
  if [ -z "$names" ]; then
    add_case "$preset: the build has no test" 1
    return
  fi
  fetched=$(grep '^fetch_' <<<"$names")
  names=$(grep -v '^fetch_' <<<"$names")
  [ $# -eq 3 ] || names=$(printf '%s\n' "${@:4}")
  [[ $preset != *san ]] || fetched=
  for name in $fetched; do
    run_one "$preset" "$results" "$2" "$name"
  done
  export -f run_one say
  printf '%s\n' $names |
    xargs -P "$3" -I '{}' bash -c 'run_one "$@"' _ "$preset" "$results" "$2" '{}'
  for name in $fetched $names; do
    add_results "$preset" "$results" "$name"
  done
}

# A program that died gives no report, or one that knows of no failure: that is one failure more.
add_results() {
  local preset=$1 results=$2 name=$3 status run=0 bad=0 skip=0 tool=0
  status=$(cat "$results/$name.status" 2>/dev/null || say 1)
  if [ -s "$results/$name.xml" ]; then
    read -r run bad skip tool < <(count_xml "$results/$name.xml")
  elif grep -q '\*\*\*Skipped' "$results/$name.log"; then
    skip=1  # a script that ended with its exit status for a skip
    sed 's/^/    /' "$results/$name.log" | grep -vE 'Start|Test project|^ *$' | head -n 4
  elif [ "$status" -eq 0 ]; then
    run=1  # a test that is no gtest
  fi
  if [ -n "${CI:-}" ] && [ "$tool" -gt 0 ]; then
    failures+=("$preset: $name: $tool skipped for a missing tool, which CI does not allow")
    failed=$((failed + tool))
    skip=$((skip - tool))
  fi
  passed=$((passed + run - bad))
  skipped=$((skipped + skip))
  failed=$((failed + bad))
  if [ "$bad" -gt 0 ]; then
    failures+=("$preset: $name: $bad of $run cases (build/$preset/test-results/$name.log):")
    while read -r case; do
      failures+=("  $case")
    done < <(failed_cases "$results/$name.xml")
  elif [ "$status" -ne 0 ]; then
    failed=$((failed + 1))
    failures+=("$preset: $name: ended with an error (build/$preset/test-results/$name.log)")
  fi
  if [ "$status" -ne 0 ]; then
    say "--- $preset: $name"
    grep -nE 'Failure|FAILED|ERROR|SUMMARY|CHECK failed|WARNING: Thread|error:' \
      "$results/$name.log" | head -n 40 || true
  fi
  if [ -s "$results/$name.xml" ]; then print_skips "$results/$name.xml"; fi
}

print_skips() {
  sed -n 's/.*<skipped message="\([^"]*\)".*/  skipped: \1/p' "$1" |
    sed 's/&#x0A;/ /g; s/&apos;/'\''/g; s/&quot;/"/g' | sort | uniq -c
}

# build_preset PRESET JOBS [--target TARGET...]: configures and builds, with a line of progress now
# and then.
build_preset() {
  local preset=$1 jobs=$2 log=build/$1.log status=0
  shift 2
  mkdir -p build
  {
    cmake --preset "$preset" -DMINKE_TESTS=ON &&
      cmake --build --preset "$preset" "$@" -- -j "$jobs"
  } 2>&1 | tee "$log" | show_progress || status=1
  add_case "build of preset $preset" "$status" "$log"
  return "$status"
}

# The last lines of the run. The exit status says whether everything passed.
print_summary() {
  say ""
  say "Time used per stage:"
  printf '  %s\n' "${stage_rows[@]}"
  if [ "${#failures[@]}" -gt 0 ]; then
    say "Failures:"
    printf '  %s\n' "${failures[@]}"
  fi
  say "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" -eq 0 ]
}
