#!/bin/sh
# What every image of this repository needs on top of Debian: the named packages, and the user
# 65532 that all of them run as. Does nothing where both are there already, so the same Dockerfile
# works on a bare Debian image and on our own base, which needs no package mirror.
# usage: setup.sh PACKAGE...
set -eu

missing=""
for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q "ok installed" || missing="$missing $package"
done
if [ -n "$missing" ]; then
    apt-get update
    # shellcheck disable=SC2086  # a list of package names
    apt-get install -y --no-install-recommends $missing
    rm -rf /var/lib/apt/lists/*
fi

# Without a passwd entry getpass and torch fail for a non-root user.
if ! getent passwd 65532 >/dev/null; then
    groupadd --gid 65532 kvserving
    useradd --uid 65532 --gid 65532 --home-dir /tmp --no-create-home --shell /usr/sbin/nologin kvserving
fi
