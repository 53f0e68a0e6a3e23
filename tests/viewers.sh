#!/bin/sh
# Installs the viewers that exports are held against: perf, callgrind_annotate, Chromium, and node with
# speedscope, pprof-format and the Firefox Profiler's command line; python with OpenTelemetry's messages,
# junitparser, sarif-tools and PyYAML; cargo-flamegraph, cargo-valgrind and gungraun's runner; valgrind and cargo-deny;
# two versions of BOLT, three of clang, autofdo. Tests that miss one of them say "skipped".
#
#     tests/viewers.sh [DIR]
#
# DIR (default: target/viewers beside this folder) takes what does not come from the system's packages. Tests
# find it there, or in LWP_VIEWERS. Versions are those that the exports were proved with.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
dir=${1:-${LWP_VIEWERS:-$here/../target/viewers}}
mkdir -p "$dir"

apt-get install -y --no-install-recommends \
    autofdo bolt-16 bolt-19 chromium chromium-driver clang-14 clang-16 clang-19 linux-perf llvm-14 llvm-16 \
    llvm-19 nodejs npm python3-venv tmux valgrind

npm install --no-audit --no-fund --prefix "$dir/npm" \
    speedscope@1.25.0 pprof-format@2.3.2 @firefox-devtools/profiler-cli@0.10.0

python3 -m venv "$dir/python"
"$dir/python/bin/pip" install --quiet opentelemetry-proto==1.45.2 junitparser==5.0.3 sarif-tools==3.0.5 \
    pyyaml==6.0.3
# For the fleet: a server of S3's protocol, and another engine that reads its files.
"$dir/python/bin/pip" install --quiet 'moto[s3,server]==5.2.5' duckdb==2.0.0

cargo install --locked --root "$dir/cargo" flamegraph
cargo install --locked --root "$dir/cargo" --version 0.20.0 gungraun-runner
cargo install --locked --root "$dir/cargo" --version 2.4.1 cargo-valgrind
# For `cargo xtask ci`, which finds it where cargo looks.
cargo install --locked --version 0.20.2 cargo-deny
