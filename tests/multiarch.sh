#!/bin/sh
# Installs what `gcc -m32` needs. Tests of 32-bit programs say "skipped" without it.
set -eu
apt-get install -y --no-install-recommends gcc-multilib libc6-dev-i386
