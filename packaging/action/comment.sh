#!/bin/sh
# A step of the action: writes the verdict below a pull request, over the one of an earlier run. The verdict does not
# hang on it: a pull request from a fork has a token that may only read, and GitHub has its moments.
set -eu

comments=repos/$REPOSITORY/issues/$PULL_REQUEST/comments
mark='<!-- lwp gate -->'
says=$(mktemp)
trap 'rm -f "$says"' EXIT

# Ends the step well, and says why there is no comment.
without() {
    echo "::warning title=lwp gate::no comment was written ($(tr '\n' ' ' <"$says" | cut -c 1-200)): the verdict is in" \
        "the job's summary and annotations; the token needs the permission pull-requests: write, which pull requests" \
        "from forks do not get"
    exit 0
}

all=$(gh api --paginate "$comments" --jq ".[] | select(.body | startswith(\"$mark\")) | .id" 2>"$says") || without
earlier=$(printf '%s\n' "$all" | head -n 1)
if [ -n "$earlier" ]; then
    set -- --method PATCH "repos/$REPOSITORY/issues/comments/$earlier"
else
    set -- --method POST "$comments"
fi
gh api "$@" --field "body=@$LWP_DIRECTORY/comment.md" >/dev/null 2>"$says" || without
