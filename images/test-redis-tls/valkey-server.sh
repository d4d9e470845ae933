#!/bin/sh
# Redis 7.0 with a Valkey's rendered configuration, less the two words that it does not know: it takes
# up no renewed certificate by itself, and has no CLIENT SETINFO. Its copy of the ACL file is made at
# its start: ACL LOAD finds nothing new, so passwords cannot be rotated here.
# usage: valkey-server CONFIG
set -eu

config=$1
users=$(sed -n 's/^aclfile //p' "$config")
data=$(sed -n 's/^dir //p' "$config")
sed 's/ +client|setinfo\b//' "$users" >"$data/users.acl"
sed -e '/^tls-auto-reload-interval /d' -e "s|^aclfile .*|aclfile $data/users.acl|" "$config" >"$data/redis.conf"
exec redis-server "$data/redis.conf"
