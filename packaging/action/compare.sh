#!/bin/sh
# A step of the action: compares the recordings with the baseline, and says what it finds in every form. The step
# itself does not fail where a limit is exceeded: comments and artifacts come after it.
set -eu

set -- "$LWP_DIRECTORY/now" --baseline "$LWP_DIRECTORY/base" --format github \
    --write "markdown=$LWP_DIRECTORY/comment.md" --write "sarif=$LWP_DIRECTORY/lwp.sarif" \
    --write "junit=$LWP_DIRECTORY/junit.xml" \
    --flamegraphs "$LWP_DIRECTORY/flamegraphs" --flamegraphs-url "$RUN_URL#artifacts"
rm -rf "$LWP_DIRECTORY/flamegraphs"
mkdir -p "$LWP_DIRECTORY/flamegraphs" "$LWP_DIRECTORY/base"
while IFS= read -r limit || [ -n "$limit" ]; do
    limit=$(printf '%s\n' "$limit" | tr -d '[:space:]')
    [ -z "$limit" ] || set -- "$@" --limit "$limit"
done <<END
$LIMITS
END
code=0
lwp gate "$@" || code=$?
case $code in
    0) passed=true ;;
    3) passed=false ;;
    *) exit "$code" ;;
esac
cat "$LWP_DIRECTORY/comment.md" >> "$GITHUB_STEP_SUMMARY"
echo "passed=$passed" >> "$GITHUB_OUTPUT"
echo "directory=$LWP_DIRECTORY" >> "$GITHUB_OUTPUT"
# What is on a branch is what changes to it are compared with.
if [ "$EVENT" != pull_request ]; then
    lwp gate "$LWP_DIRECTORY/now" --baseline "$LWP_DIRECTORY/base" --bless
fi
