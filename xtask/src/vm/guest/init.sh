#!/bin/busybox sh
# The first program of the guest: finds its disks, and goes over to the root file system.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
while read -r module; do
    insmod "/modules/$module" || echo "@@ module $module cannot be loaded"
done < /modules/order
# The disk of this name. Devices come by and by.
disk() {
    tries=0
    while [ $tries -lt 600 ]; do
        for block in /sys/block/vd*; do
            if [ "$(cat "$block/serial" 2>/dev/null)" = "$1" ]; then
                echo "/dev/${block##*/}"
                return
            fi
        done
        sleep 0.1
        tries=$((tries + 1))
    done
    echo "@@ no disk $1" > /dev/console
    poweroff -f
}
. /job/settings
mount -t ext4 "$(disk root)" /root
mkdir -p "/root$WORK"
mount -t ext4 "$(disk programs)" "/root$WORK"
cp -a /job/. /root/job/
disk results > /root/job/results-disk
mount --move /proc /root/proc
mount --move /sys /root/sys
mount --move /dev /root/dev
exec switch_root /root /bin/bash /job/main.sh
