#!/bin/sh
# Records the unit tests of some crates at many commits of this project, and adds them to a store of `lwp fleet`: a real history, to
# look for steps in and to measure.
#
#     tests/foreign/history.sh STORE [COMMITS [CRATE…]]
#
# The last COMMITS (default: 140) of the first parents are built, oldest first, in a git worktree of its own; one that does not build
# is left out. lwp and lwp-fleet are those on the path. `cargo xtask bench-fleet --store STORE` then measures questions to it.
set -eu

store=$1
commits=${2:-140}
[ $# -le 2 ] && set -- "$store" "$commits" lwp-uarch lwp-dbt
shift 2
here=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'git -C "$here" worktree remove --force "$work/tree" 2>/dev/null || true; rm -rf "$work"' EXIT

[ -d "$store/_delta_log" ] || lwp-fleet init --store "$store"
git -C "$here" worktree add --quiet --detach "$work/tree" HEAD
for commit in $(git -C "$here" rev-list --first-parent -n "$commits" --reverse HEAD); do
    git -C "$work/tree" checkout --quiet --force --detach "$commit"
    for crate in "$@"; do
        # The last executable is that of the crate's unit tests.
        built=$(cd "$work/tree" && CARGO_TARGET_DIR=$work/target cargo test --quiet --no-run --lib -p "$crate" \
            --message-format=json 2>/dev/null | grep -o '"executable":"[^"]*"' | tail -n 1 | cut -d '"' -f 4) || built=
        if [ -z "$built" ]; then
            echo "left out: $crate at $commit does not build" >&2
            continue
        fi
        rm -f "$work/one.data"
        # Tests in one thread: threads take their turns as the machine likes.
        (cd "$work/tree" && lwp record -q --deterministic --tag project=history --tag benchmark="$crate" -o "$work/one.data" \
            -- "$built" --test-threads=1 >/dev/null) || echo "a test failed: $crate at $commit" >&2
        [ ! -f "$work/one.data" ] || lwp-fleet add --store "$store" "$work/one.data"
    done
done
