#!/bin/sh
# A step of the action: installs a release, for the steps that follow too.
set -eu

PREFIX=${RUNNER_TEMP:-/tmp}/lwp
export PREFIX
[ -n "${LWP_FROM:-}" ] || unset LWP_FROM
sh "$GITHUB_ACTION_PATH/packaging/install.sh"
echo "$PREFIX/bin" >> "$GITHUB_PATH"
