#!/bin/sh
# Installs libcpc, libpctx, liblwp and the commands cputrack and cpustat, as far as they were built, with
# headers, manual pages and pkg-config files.
#
#   cargo build --release -p lwp-cpc -p lwp-pctx -p lwp-capi -p cpc-tools
#   DESTDIR=... PREFIX=/usr/local LIBDIR=... crates/lwp-cpc/install.sh [FOLDER]
#
# FOLDER holds the built libraries: target/release if it is not given. COMMANDS names the commands: both if it is
# not set.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
built=${1:-${CARGO_TARGET_DIR:-$root/target}/release}
prefix=${PREFIX:-/usr/local}
libdir=${LIBDIR:-$prefix/lib}
includedir=${INCLUDEDIR:-$prefix/include}
mandir=${MANDIR:-$prefix/share/man}
destdir=${DESTDIR:-}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$root/Cargo.toml" | head -n 1)

# Each is left out where it was not built, but not all of them.
if [ ! -f "$built/liblwp_cpc.so" ] && [ ! -f "$built/liblwp_pctx.so" ] && [ ! -f "$built/liblwp_capi.so" ]
then
    echo "install: none of the libraries is in $built; build them first" >&2
    exit 1
fi

# library NAME BUILT-AS: the file and its links.
library() {
    install -d "$destdir$libdir"
    install -m 755 "$built/$2" "$destdir$libdir/$1.so.1.0.0"
    ln -sf "$1.so.1.0.0" "$destdir$libdir/$1.so.1"
    ln -sf "$1.so.1" "$destdir$libdir/$1.so"
    echo "installed $destdir$libdir/$1.so.1.0.0"
}

# package NAME DESCRIPTION LIBS [CFLAGS]: the pkg-config file.
package() {
    install -d "$destdir$libdir/pkgconfig"
    cat > "$destdir$libdir/pkgconfig/$1.pc" <<END
prefix=$prefix
libdir=$libdir
includedir=$includedir

Name: $1
Description: $2
Version: $version
Libs: -L\${libdir} $3
Cflags: -I\${includedir}${4:+ $4}
END
}

# pages FILE...: manual pages of section 3.
pages() {
    for page in "$@"; do
        install -m 644 "$page" "$destdir$mandir/man3/$(basename "$page")"
    done
}

install -d "$destdir$includedir" "$destdir$mandir/man3"
if [ -f "$built/liblwp_cpc.so" ]; then
    library libcpc liblwp_cpc.so
    install -m 644 "$here/include/libcpc.h" "$destdir$includedir/libcpc.h"
    package libcpc "CPU performance counters, after Solaris' libcpc" "-lcpc"
    pages "$here"/man/*.3cpc "$here"/man/*.3lib
fi
if [ -n "${COMPAT:-}" ]; then
    # Headers of Solaris that ports include; only where they are asked for.
    install -d "$destdir$includedir/libcpc-compat/sys"
    install -m 644 "$here"/compat/*.h "$destdir$includedir/libcpc-compat/"
    install -m 644 "$here"/compat/sys/*.h "$destdir$includedir/libcpc-compat/sys/"
    package libcpc-compat "Headers of Solaris for ports that use libcpc" "-lcpc -pthread" \
        "-I\${includedir}/libcpc-compat"
fi
if [ -f "$built/liblwp_pctx.so" ]; then
    library libpctx liblwp_pctx.so
    install -m 644 "$root/crates/lwp-pctx/include/libpctx.h" "$destdir$includedir/libpctx.h"
    package libpctx "Control of processes, after Solaris' libpctx" "-lpctx"
    pages "$root"/crates/lwp-pctx/man/*.3cpc "$root"/crates/lwp-pctx/man/*.3lib
fi
if [ -f "$built/liblwp_capi.so" ]; then
    library liblwp liblwp_capi.so
    install -m 644 "$root/include/lwp.h" "$root/include/lwp_arch.h" "$destdir$includedir/"
    package lwp "Lightweight Profiling, and names for generated code" "-llwp"
    pages "$root"/crates/lwp-capi/man/*.3
fi
for command in ${COMMANDS-cputrack cpustat}; do
    if [ -f "$built/$command" ]; then
        install -d "$destdir$prefix/bin" "$destdir$mandir/man1"
        install -m 755 "$built/$command" "$destdir$prefix/bin/$command"
        install -m 644 "$root/crates/cpc-tools/man/$command.1" "$destdir$mandir/man1/$command.1"
        echo "installed $destdir$prefix/bin/$command"
    else
        echo "not built, so not installed: $command (cargo build --release -p cpc-tools)"
    fi
done

# Whether the dynamic linker looks into $libdir of itself.
known() {
    { ldconfig -v -N -X; cat /etc/ld.so.conf /etc/ld.so.conf.d/*.conf; } 2> /dev/null |
        sed 's/[: ].*//' | grep -qx "$libdir"
}
if [ -n "$destdir" ]; then
    echo "programs find the libraries once $libdir is in place and ldconfig has run"
elif ! known; then
    echo "the dynamic linker does not look into $libdir: build programs with -Wl,-rpath,$libdir, set" \
        "LD_LIBRARY_PATH=$libdir, or name the folder in /etc/ld.so.conf.d and run ldconfig"
elif [ "$(id -u)" = 0 ] && ldconfig; then
    echo "ldconfig has run: programs find the libraries"
else
    echo "run ldconfig as root, so that programs find the libraries"
fi
