#!/usr/bin/env bash
# Installs what building and testing need and a bare Debian lacks; with `build`, only what building and running need. Quiet where nothing is missing.
set -euo pipefail

missing=()
need() { command -v "$1" >/dev/null 2>&1 || missing+=("$2"); }
need cc gcc
need curl curl
need setsid util-linux
need make make
[ -e /usr/include/stdlib.h ] || missing+=(libc6-dev)
if [ "${1:-}" != build ]; then
    need openssl openssl
    need mount mount
    need prlimit util-linux
    # The reference trackers, and what checks them.
    [ -e /usr/include/mbedtls/md.h ] || missing+=(libmbedtls-dev)
    [ -e /usr/include/zlib.h ] || missing+=(zlib1g-dev)
    need valgrind valgrind
    [ -e /usr/lib/debug/.build-id ] || missing+=(libc6-dbg)
    need python3 python3
    need node nodejs
    need npm npm
    # The proxies of docs/proxies.md. Debian keeps nginx where only root's PATH leads.
    [ -x /usr/sbin/nginx ] || need nginx nginx-light
    need caddy caddy
fi

if [ "${#missing[@]}" -gt 0 ]; then
    echo "installing: ${missing[*]}" >&2
    sudo=()
    [ "$(id -u)" -eq 0 ] || sudo=(sudo)
    "${sudo[@]}" apt-get update -qq
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
fi

command -v cargo >/dev/null 2>&1 || {
    echo "cargo is not installed: get Rust $(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml) with rustup" >&2
    exit 1
}
