#!/bin/sh
# Builds the C libraries for AddressSanitizer and ThreadSanitizer, and runs their clients' scenarios under them.
# Needs a nightly toolchain, whose compiler alone instruments Rust, and gcc with its sanitizers' libraries.
#
#     tests/sanitizers.sh [address] [thread]
#
# Scenarios that use what a sanitizer takes for itself are left out below, each with the reason. Exit code 1: a
# sanitizer reported something. Exit code 0 with "skipped": it cannot run here.
set -u

here=$(cd "$(dirname "$0")/.." && pwd)
[ $# -gt 0 ] || set -- address thread
cargo +nightly --version >/dev/null 2>&1 || { echo "sanitizers: skipped: there is no nightly toolchain"; exit 0; }
target=x86_64-unknown-linux-gnu
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
failures=0

# build SANITIZER: the libraries, as they are installed, in $dir/SANITIZER.
build() {
    flags="-Zsanitizer=$1 -Cunsafe-allow-abi-mismatch=sanitizer"
    RUSTFLAGS=$flags CARGO_PROFILE_DEV_DEBUG=line-tables-only cargo +nightly build -q --target $target \
        --target-dir "$here/target/sanitizers-$1" \
        --manifest-path "$here/Cargo.toml" -p lwp-cpc -p lwp-capi -p lwp-pctx || return 1
    built=$here/target/sanitizers-$1/$target/debug
    mkdir -p "$dir/$1"
    for library in cpc:lwp_cpc lwp:lwp_capi pctx:lwp_pctx; do
        cp "$built/lib${library#*:}.so" "$dir/$1/lib${library%%:*}.so.1"
        ln -sf "lib${library%%:*}.so.1" "$dir/$1/lib${library%%:*}.so"
    done
}

# client SANITIZER LIBRARY CRATE: the client of a library's scenarios.
client() {
    gcc -g -O1 "-fsanitize=$1" -pthread -fopenmp -I "$here/crates/$3/include" -I "$here/include" \
        -o "$dir/$1/client-$2" "$here/crates/$3/tests/client.c" -L "$dir/$1" "-l$2" "-Wl,-rpath,$dir/$1"
}

# scenario SANITIZER LIBRARY WORDS...
scenario() {
    sanitizer=$1 library=$2
    shift 2
    export ASAN_OPTIONS=exitcode=99 TSAN_OPTIONS=exitcode=99 LSAN_OPTIONS=exitcode=99
    timeout -k 5 300 "$dir/$sanitizer/client-$library" "$@" >"$dir/out" 2>"$dir/err"
    status=$?
    if [ $status -eq 99 ] || grep -q "Sanitizer" "$dir/err"; then
        echo "$sanitizer, $library $*: $status"
        head -40 "$dir/err"
        failures=$((failures + 1))
    else
        echo "$sanitizer, $library $*: nothing to report (exit code $status)"
    fi
}

for sanitizer in "$@"; do
    build "$sanitizer" || { echo "$sanitizer: skipped: the libraries cannot be built for it"; continue; }
    client "$sanitizer" cpc lwp-cpc && client "$sanitizer" lwp lwp-capi && client "$sanitizer" pctx lwp-pctx ||
        { echo "$sanitizer: skipped: gcc cannot build for it"; continue; }
    names="rebind threads crowd buffers errors objects cycles walkers records ways neighbours memory"
    # TSan cannot follow a fork of a process with threads; OpenMP's own runtime is not built for it.
    [ "$sanitizer" = thread ] || names="$names forked openmp"
    for name in $names; do scenario "$sanitizer" cpc "$name"; done
    for name in none code available; do scenario "$sanitizer" lwp "$name"; done
    scenario "$sanitizer" pctx all sh -c "exec sh -c 'exit 3'"
    scenario "$sanitizer" pctx stranger sleep 0.1
    scenario "$sanitizer" pctx refused x
done
[ $failures -eq 0 ]
