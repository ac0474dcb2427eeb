#!/bin/bash
# mirror.sh [ETC_APT]: prints the Debian mirror that this machine uses. Debian 12 and older name it in
# sources.list, newer ones and images in sources.list.d/debian.sources; either file may be absent.
apt=${1:-/etc/apt}
mirror=
if [ -e "$apt/sources.list.d/debian.sources" ]; then
  mirror=$(sed -n 's/^URIs: *\([^ ]*\).*/\1/p' "$apt/sources.list.d/debian.sources" | head -1)
fi
if [ -z "$mirror" ] && [ -e "$apt/sources.list" ]; then
  mirror=$(sed -n 's/^deb \(\[[^]]*\] \)\?\([^ ]*\) .*/\2/p' "$apt/sources.list" | head -1)
fi
[ -n "$mirror" ] && echo "$mirror"
