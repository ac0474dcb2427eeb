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
root=$(disk root)
mount -t ext4 "$root" /root
label=
if grep -q selinux=1 /proc/cmdline; then
    # The policy comes before the first program that it is about. No tool has labelled the files.
    mount -t selinuxfs selinuxfs /sys/fs/selinux
    policy=$(echo /root/etc/selinux/default/policy/policy.*)
    dd "if=$policy" of=/sys/fs/selinux/load bs=64M || echo "@@ the policy cannot be loaded" > /dev/console
    umount /root
    label=context=system_u:object_r:bin_t:s0
    mount -t ext4 -o $label "$root" /root
fi
mkdir -p "/root$WORK"
mount -t ext4 -o "$label" "$(disk programs)" "/root$WORK"
cp -a /job/. /root/job/
disk results > /root/job/results-disk
mount --move /proc /root/proc
mount --move /sys /root/sys
mount --move /dev /root/dev
exec switch_root /root /bin/bash /job/main.sh
