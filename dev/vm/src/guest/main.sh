#!/bin/bash
# Process 1 of the guest: prepares what a Debian system has, runs the parts of the row, hands the
# results over and ends the machine. Its own lines on the console begin with "@@".
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/root LC_ALL=C.UTF-8
. /job/settings
say() { echo "@@ $*" > /dev/console; }
mount -t tmpfs tmpfs /run
mount -t tmpfs -o mode=1777 tmpfs /tmp
mkdir -p /dev/pts /dev/shm
ln -s /proc/self/fd /dev/fd
ln -s /proc/self/fd/0 /dev/stdin
ln -s /proc/self/fd/1 /dev/stdout
ln -s /proc/self/fd/2 /dev/stderr
mount -t devpts devpts /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t securityfs securityfs /sys/kernel/security
ip link set lo up
hostname midair-vm
ulimit -c 0
echo 0 > /proc/sys/kernel/printk_ratelimit
mkdir -p /results/logs
uname -r > /results/kernel
cat /sys/kernel/security/lsm > /results/lsm
cp /proc/cmdline /results/cmdline
say "kernel $(uname -r), $(nproc) processors, security modules $(cat /results/lsm)"
# Not this process: it must be free to reap what the tests leave behind.
while read -r part || [ -n "$part" ]; do
    say "part $part"
    bash -c ". /job/settings; . /job/tests.sh; part_$part" < /dev/null > "/results/logs/part-$part" 2>&1 &
    wait $!
done < /job/parts
dmesg > /results/dmesg
tar -cf "$(cat /job/results-disk)" -C /results .
sync
say "done"
echo o > /proc/sysrq-trigger
sleep 60
