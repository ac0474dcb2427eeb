#!/bin/bash
# enter.sh [--userspec=USER:GROUP] ROOT PROGRAM [ARG ...]: runs a program with ROOT as its root
# directory. /proc, /dev and /sys/devices are mounted there in a mount namespace of the program's
# own: nothing stays mounted, and no other process sees it. Needs root.
if [ "${1-}" != --inside ]; then exec unshare --mount --propagation private bash "$0" --inside "$@"; fi
shift; who=(); case ${1-} in --userspec=*) who=("$1"); shift;; esac
ROOT=${1:?usage: enter.sh [--userspec=USER:GROUP] ROOT PROGRAM [ARG ...]}; shift
for m in proc dev sys/devices; do
  mountpoint -q "$ROOT/$m" || mount --bind "/$m" "$ROOT/$m" || exit 125
done
exec chroot "${who[@]}" "$ROOT" "$@"
