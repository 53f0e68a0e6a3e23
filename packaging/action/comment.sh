#!/bin/sh
# A step of the action: writes the verdict below a pull request, over the one of an earlier run.
set -eu

comments=repos/$REPOSITORY/issues/$PULL_REQUEST/comments
mark='<!-- lwp gate -->'
earlier=$(gh api --paginate "$comments" --jq ".[] | select(.body | startswith(\"$mark\")) | .id" | head -n 1)
if [ -n "$earlier" ]; then
    gh api --method PATCH "repos/$REPOSITORY/issues/comments/$earlier" --field "body=@$LWP_DIRECTORY/comment.md" >/dev/null
else
    gh api --method POST "$comments" --field "body=@$LWP_DIRECTORY/comment.md" >/dev/null
fi
