#!/bin/sh
# The command line of the service, with the service's user, settings and state. Copy to /usr/local/bin/notewright
[ "$(id -u)" = 0 ] || exec sudo "$0" "$@"
cd /srv/notes || exit 1  # which commands act on, unless --workspace names another
umask 007
exec runuser -u notewright -- env XDG_STATE_HOME=/var/lib XDG_CACHE_HOME=/var/cache \
    NOTEWRIGHT_CONFIG=/etc/notewright/notewright.toml /opt/notewright/bin/notewright "$@"
