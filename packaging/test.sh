#!/bin/sh
# Tries what `cargo xtask dist` has made: installs it into empty places and uses it there.
#
#   packaging/test.sh [DIST]
#
# What needs a tool that is missing is skipped, and that is said.
# Promise: R55
set -eu

here=$(cd "$(dirname "$0")" && pwd)
dist=$(cd "${1:-$here/../target/dist}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# try NAME COMMAND...: says whether it works.
try() {
    name=$1
    shift
    if "$@" >"$work/log" 2>&1; then
        echo "ok       $name"
    else
        echo "FAILED   $name"
        sed 's/^/         /' "$work/log"
        failures=$((failures + 1))
    fi
}

# has NAME TOOL: whether the test can be made.
has() {
    command -v "$2" >/dev/null && return
    echo "skipped  $1: no $2"
    return 1
}

cat > "$work/client.c" <<'END'
#include <lwp.h>
#include <stdio.h>
int main(void) { printf("%d\n", lwp_available()); return 0; }
END

sums() { (cd "$dist" && sha256sum -c SHA256SUMS); }
try "checksums" sums

script() {
    PREFIX=$work/prefix LWP_FROM=$dist sh "$dist/install.sh" &&
        "$work/prefix/bin/lwp" stat -e instructions -- /bin/true &&
        test -s "$work/prefix/share/man/man1/lwp-record.1" &&
        test -s "$work/prefix/share/bash-completion/completions/lwp" &&
        "$work/prefix/bin/cputrack" -h
}
try "install script, commands, pages and completions" script

tampered() {
    mkdir "$work/tampered"
    cp "$dist"/*.tar.gz "$dist/SHA256SUMS" "$work/tampered/"
    for file in "$work/tampered"/*.tar.gz; do echo >> "$file"; done
    ! PREFIX=$work/not LWP_FROM=$work/tampered sh "$dist/install.sh" && ! test -e "$work/not/bin/lwp"
}
try "an archive with another checksum is refused" tampered

# client PREFIX LIBDIR: builds and runs a C program against what is installed there.
client() {
    export PKG_CONFIG_PATH="$2/pkgconfig"
    # shellcheck disable=SC2046
    cc -o "$work/client" "$work/client.c" $(pkg-config --cflags --libs lwp libcpc libpctx) &&
        LD_LIBRARY_PATH=$2 "$work/client" && readelf -d "$work/client" | grep -q 'liblwp\.so\.1'
}
if has "pkg-config" pkg-config && has "pkg-config" cc; then
    try "pkg-config and the C libraries, from a prefix" client "$work/prefix" "$work/prefix/lib"
fi

deb() {
    dpkg-deb --info "$dist"/lwp_*_amd64.deb && dpkg-deb -x "$dist"/lwp_*_amd64.deb "$work/deb" &&
        "$work/deb/usr/bin/lwp" stat -e instructions -- /bin/true &&
        test -L "$work/deb/usr/lib/x86_64-linux-gnu/liblwp.so.1" &&
        (cd "$work/deb" && dpkg-deb --ctrl-tarfile "$dist"/lwp_*_amd64.deb | tar -xO ./md5sums | md5sum -c --quiet)
}
# Into an empty system of its own: dpkg unpacks, and its database knows the package.
dpkg_root() {
    mkdir -p "$work/root/var/lib/dpkg/info" "$work/root/var/lib/dpkg/updates"
    touch "$work/root/var/lib/dpkg/status" "$work/root/var/lib/dpkg/available"
    dpkg --root="$work/root" --force-depends --force-script-chrootless --install "$dist"/lwp_*_amd64.deb &&
        dpkg --root="$work/root" --status lwp | grep -q '^Status: install ok' &&
        "$work/root/usr/bin/lwp" --version
}
if has "Debian package" dpkg-deb; then
    try "Debian package, unpacked" deb
    if [ "$(id -u)" = 0 ]; then
        try "Debian package, installed into an empty root" dpkg_root
    else
        echo "skipped  Debian package, installed: not root"
    fi
fi

# What Docker would do with the file beside the image's root: COPY it, and start the entry point in it.
image() {
    cp -R "$dist/image" "$work/image"
    chmod 755 "$work/image/usr/bin"/*
    unshare --mount --pid --fork sh -c '
        mount -t proc proc "$1/proc" && cd "$1" && exec chroot "$1" /usr/bin/lwp stat -e instructions -- /usr/bin/lwp --version
    ' sh "$work/image"
}
if [ "$(id -u)" = 0 ] && has "image" unshare && unshare --mount --pid --fork true 2>/dev/null; then
    try "image: the commands alone in their root" image
else
    echo "skipped  image: it takes root and namespaces"
fi

wheel() {
    python3 -m venv "$work/venv" &&
        "$work/venv/bin/pip" install --quiet --no-index "$dist"/lwp_profiler-*.whl &&
        "$work/venv/bin/lwp" stat -e instructions -- /bin/true && "$work/venv/bin/lwp" --version
}
if ! ls "$dist"/lwp_profiler-*.whl >/dev/null 2>&1; then
    echo "skipped  wheel: it was not built (pip install maturin)"
elif has "wheel" python3; then
    try "wheel in a virtual environment" wheel
fi

[ "$failures" = 0 ]
