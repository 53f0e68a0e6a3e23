#!/bin/sh
# Installs a release of lwp: commands, manual pages, completions, C libraries with headers and pkg-config files.
#
#   curl -fsSL https://github.com/lwp-rs/lwp/releases/latest/download/install.sh | sh
#
# PREFIX        where: $HOME/.local, or /usr/local for root
# LWP_VERSION   which release: the newest
# LWP_FROM      a directory or an address with the release's files, in place of GitHub
#
# What is downloaded is held against the release's list of checksums, and nothing is installed where it differs.
set -eu

fail() {
    echo "install: $1" >&2
    exit 1
}

[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || fail "lwp needs Linux on x86-64"
for tool in tar sha256sum; do
    command -v "$tool" >/dev/null || fail "there is no $tool"
done

if [ "$(id -u)" = 0 ]; then default=/usr/local; else default=$HOME/.local; fi
prefix=${PREFIX:-$default}
releases=https://github.com/lwp-rs/lwp/releases
case ${LWP_VERSION:-} in
    '') from=${LWP_FROM:-$releases/latest/download} ;;
    *) from=${LWP_FROM:-$releases/download/v${LWP_VERSION#v}} ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# get FILE: from the release into the working directory.
get() {
    case $from in
        *://*)
            if command -v curl >/dev/null; then
                curl -fsSL --proto '=https' --retry 3 -o "$work/$1" "$from/$1"
            elif command -v wget >/dev/null; then
                wget -q -O "$work/$1" "$from/$1"
            else
                fail "there is neither curl nor wget"
            fi ;;
        *) cp "$from/$1" "$work/$1" ;;
    esac || fail "$from/$1 cannot be had"
}

get SHA256SUMS
file=$(sed -n 's/^[0-9a-f]*  \(lwp-.*-x86_64-linux\.tar\.gz\)$/\1/p' "$work/SHA256SUMS" | head -n 1)
[ -n "$file" ] || fail "the release has no archive for this machine"
get "$file"
grep -F "  $file" "$work/SHA256SUMS" > "$work/sum"
(cd "$work" && sha256sum -c sum >/dev/null 2>&1) || fail "$file is not what the release says it is"

tar -xzf "$work/$file" -C "$work"
mkdir -p "$prefix"
cp -R "$work/${file%.tar.gz}/." "$prefix/"
echo "installed $("$prefix/bin/lwp" --version) in $prefix"
case :$PATH: in
    *":$prefix/bin:"*) ;;
    *) echo "add it to the path: export PATH=\"$prefix/bin:\$PATH\"" ;;
esac
case $(id -u):$prefix in
    0:/usr | 0:/usr/local)
        # So that programs find the libraries: the system looks for them there.
        if command -v ldconfig >/dev/null; then
            ldconfig || echo "install: ldconfig failed: run it again, or programs do not find the libraries" >&2
        fi ;;
esac
