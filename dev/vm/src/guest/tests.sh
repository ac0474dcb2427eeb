# The parts of rows. Each result is a line of /results/results: program, test, outcome, seconds.
# Outcomes: passed, flaky (passed when tried again), left-out, failed, timeout, not-run (the row's
# time was over).

export MIDAIR_SKIP_LAB=1 MIDAIR_STAGE="$STAGE" MIDAIR_VM=1 MIDAIR_SLOWER=$FACTOR
# Emulated, one of its sessions takes two seconds (bench-results/vm.md names it).
[ "$FACTOR" = 1 ] || export MIDAIR_GROWTH=20
# As .cargo/config.toml has it: test programs run without cargo here.
export MIDAIR_NEVER_BORROW=gpu-model-
say() { echo "@@ $*" > /dev/console; }

# once LOG SECONDS DIRECTORY COMMAND...: sets outcome and took
once() {
    local log=$1 limit=$2 began=$EPOCHREALTIME
    cd "$3" || return
    shift 3
    timeout -k 10 "$limit" "$@" > "$log" 2>&1 < /dev/null
    local code=$?
    took=$(awk -v a="$began" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }')
    case $code in
        0) outcome=passed; grep -q 'LEFT OUT, NOT TESTED' "$log" && outcome=left-out ;;
        124 | 137) outcome=timeout ;;
        *) outcome=failed ;;
    esac
}

# one PROGRAM EXECUTABLE DIRECTORY TEST
one() {
    local log="/results/logs/$1-${4//[^A-Za-z0-9_]/_}" outcome took
    once "$log" $((60 * FACTOR)) "$3" "$2" --exact "$4" --nocapture --test-threads=1
    # One that took too long does so again, and costs the others their time.
    [ $outcome = timeout ] && say "timeout: $1 $4 ($took s)"
    if [ $outcome = failed ]; then
        mv "$log" "$log.first"
        once "$log" $((60 * FACTOR)) "$3" "$2" --exact "$4" --nocapture --test-threads=1
        [ $outcome = passed ] && outcome=flaky
        [ $outcome = flaky ] || say "$outcome: $1 $4 ($took s)"
    else
        [ $outcome = passed ] && rm "$log"
    fi
    printf '%s\t%s\t%s\t%s\n' "$1" "$4" "$outcome" "$took" >> /results/results
}

part_tests() {
    local jobs=0 name path directory test
    export LD_LIBRARY_PATH="$BUILT/deps:$BUILT"
    while IFS=$'\t' read -r name path directory; do
        say "tests of $name"
        while read -r test; do
            case $test in
                *': test') test=${test%: test} ;;
                *) continue ;;
            esac
            [[ "$name $test" =~ $ONLY ]] || continue
            if [ $SECONDS -gt "$BUDGET" ]; then
                printf '%s\t%s\tnot-run\t0\n' "$name" "$test" >> /results/results
                continue
            fi
            one "$name" "$path" "$directory" "$test" &
            jobs=$((jobs + 1))
            if [ $jobs -ge "$(nproc)" ]; then
                wait -n
                jobs=$((jobs - 1))
            fi
        done < <(cd "$directory" && "$path" --list --format terse 2> /dev/null)
    done < /job/programs
    wait
}

# Of a row for the torture matrix, ONLY has rows of the matrix, or parts of the cells' names, with
# "|" between them.
part_torture() {
    local line word words asked=() outcome=failed
    IFS='|' read -ra words <<< "$ONLY"
    for word in "${words[@]}"; do
        case $word in
            *[!0-9]*) asked+=(--cell "$word") ;;
            *) asked+=(--row "$word") ;;
        esac
    done
    "$BUILT/midair-torture" --quick --no-others "${asked[@]}" --out /results 2>&1 |
        while IFS= read -r line; do
            echo "$line"
            [[ $line = \[* ]] && say "$line"
        done
    [ "${PIPESTATUS[0]}" = 0 ] && outcome=passed
    printf 'midair-torture\tquick form\t%s\t%s\n' "$outcome" "$SECONDS" >> /results/results
}

part_checks() {
    local check outcome took as=()
    for check in $CHECKS; do
        for try in first second; do
            if [ -e /sys/fs/selinux/enforce ]; then
                # As a user who logged in: the first program's domain may hardly start others.
                setenforce 0
                as=(runcon unconfined_u:unconfined_r:unconfined_t:s0)
            fi
            once "/results/logs/check-$check" $((60 * FACTOR)) "$WORK" "${as[@]}" \
                "$BUILT/midair-vm-checks" "$check"
            [ $outcome = passed ] && break
            cp "/results/logs/check-$check" "/results/logs/check-$check.$try"
        done
        [ $outcome = passed ] && [ $try = second ] && outcome=flaky
        grep '^said: ' "/results/logs/check-$check" >> "/results/said-$check"
        say "check $check: $outcome"
        printf 'checks\t%s\t%s\t%s\n' "$check" "$outcome" "$took" >> /results/results
    done
}
