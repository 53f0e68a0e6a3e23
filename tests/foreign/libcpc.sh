#!/bin/sh
# Compares a libcpc with what its documents say: illumos' own (OpenIndiana, SmartOS), Solaris', or ours.
#
#   tests/foreign/libcpc.sh                          on illumos, as root or with the privilege cpc_cpu
#   CFLAGS="-I include -L lib" tests/foreign/libcpc.sh   on Linux, where libcpc was not installed
#
# Prints the log of libcpc.c and, behind it, how it differs from libcpc.log, which is what ours prints. Ends with
# 0 if it does not differ, 1 if it does, 77 if nothing can be counted here. CC, CFLAGS and EVENT may be given.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/libcpc.XXXXXX")
trap 'rm -rf "$work"' EXIT
case $(uname -s) in
SunOS) event=PAPI_tot_cyc machine=-m64 ;;
*) event=task-clock machine= ;;
esac

# shellcheck disable=SC2086 # Flags are words.
${CC:-cc} $machine -D__EXTENSIONS__ "$here/libcpc.c" -o "$work/libcpc" ${CFLAGS:-} -lcpc -lpthread
if "$work/libcpc" "${EVENT:-$event}" > "$work/log"; then
    cat "$work/log"
else
    exit $?
fi
if diff "$here/libcpc.log" "$work/log" > "$work/differences"; then
    echo "# as libcpc.log" >&2
else
    echo "# differs from libcpc.log (<):" >&2
    cat "$work/differences" >&2
    exit 1
fi
