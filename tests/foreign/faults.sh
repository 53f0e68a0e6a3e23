#!/bin/sh
# Prints the time that a fault takes which a handler takes on, natively and on the virtual CPU: of a
# C program, and of implicit null checks in a JVM, where there is one.
#
#     LWP=target/release/lwp tests/foreign/faults.sh
set -eu
here=$(cd "$(dirname "$0")" && pwd)
lwp=$(realpath "${LWP:-target/release/lwp}")
dir=$(mktemp -d)
trap 'rm -r "$dir"' EXIT
cc -O2 -Wall -Wextra -o "$dir/faults" "$here/faults.c"

# Three times: natively, under `lwp run`, and under `lwp stat`.
measure() {
    echo "# $1"
    shift
    for round in 1 2 3; do
        echo "native: $("$@")"
        echo "run: $("$lwp" run -- "$@")"
        echo "stat: $("$lwp" stat -o /dev/null -- "$@")"
    done
}

measure "a handler in C moves the program on" "$dir/faults"
if command -v javac >/dev/null; then
    javac -d "$dir" "$here/Nulls.java"
    # The client compiler leaves null checks to the processor, however many fail.
    measure "implicit null checks" java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
        -XX:-StackTraceInThrowable -cp "$dir" Nulls
fi
