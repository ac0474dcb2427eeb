//! Which file systems are certain to answer.
//!
//! A user may serve a file system (FUSE) that never answers. Whoever looks up a name there, opens a
//! file or reads a page of one waits for as long as that user likes, and cannot even be killed. So
//! the kind of a file system is looked up in the kernel's list of mounts before the file system is
//! contacted at all.

use std::collections::HashMap;
use std::io;

use midair_ptrace::sys::{self, Lies};

use super::kernel::kernel_text;
use crate::Tid;

/// File systems that answer without outside help: they are on this machine's devices, in its
/// memory, or the kernel's own.
const LOCAL: [&str; 42] = [
    "aufs",
    "bcachefs",
    "bpf",
    "btrfs",
    "cgroup",
    "cgroup2",
    "configfs",
    "cramfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "erofs",
    "exfat",
    "ext2",
    "ext3",
    "ext4",
    "f2fs",
    "hugetlbfs",
    "iso9660",
    "jfs",
    "mqueue",
    "msdos",
    "nilfs2",
    "ntfs3",
    "overlay",
    "proc",
    "pstore",
    "ramfs",
    "reiserfs",
    "rootfs",
    "securityfs",
    "selinuxfs",
    "squashfs",
    "sysfs",
    "tmpfs",
    "tracefs",
    "udf",
    "vfat",
    "xfs",
    "zfs",
    "shm",
];

/// File systems of the network and of a host. Only root can mount them, from servers that root
/// chose.
const SERVED: [&str; 16] = [
    "9p", "afs", "beegfs", "ceph", "cifs", "gpfs", "lustre", "nfs", "nfs4", "orangefs", "panfs",
    "pvfs2", "smb3", "virtiofs", "wekafs", "wfs",
];

/// Whether a file system of this kind answers, no matter who has mounted it.
fn answers(kind: &str) -> bool {
    LOCAL.contains(&kind) || SERVED.contains(&kind)
}

/// The mounts that a process sees, and those that we see.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Mounts {
    /// Whether a mount answers, by the mount's number.
    mounts: HashMap<u64, bool>,
    /// Whether all mounts of a device answer, by the device.
    devices: HashMap<(u32, u32), bool>,
}

impl Mounts {
    /// Reads both lists. The process's list may not be readable; then ours alone is used.
    pub(crate) fn of(tid: Option<Tid>) -> io::Result<Mounts> {
        let mut all = Mounts::default();
        if let Some(tid) = tid
            && let Ok(theirs) = kernel_text(format!("{tid}/mountinfo"))
        {
            all.add(&theirs);
        }
        all.add(&kernel_text("self/mountinfo")?);
        Ok(all)
    }

    /// Adds the lines of a list of mounts (see proc_pid_mountinfo(5)).
    fn add(&mut self, text: &[u8]) {
        for line in text.split(|&byte| byte == b'\n') {
            let Some((number, device, kind)) = mount(&String::from_utf8_lossy(line)) else {
                continue;
            };
            let answers = answers(&kind);
            let all = self.devices.entry(device).or_insert(true);
            *all &= answers;
            self.mounts.insert(number, answers);
        }
    }

    /// Whether the file system at this place answers. None where that is not known, because no list
    /// has the mount.
    pub(crate) fn answer(&self, lies: &Lies) -> Option<bool> {
        let by_mount = lies.mount.and_then(|number| self.mounts.get(&number));
        match by_mount {
            Some(answers) => Some(*answers),
            None => self.device_answers(lies.device),
        }
    }

    /// Whether everything on this device answers. None where that is not known.
    pub(crate) fn device_answers(&self, device: (u32, u32)) -> Option<bool> {
        match self.devices.get(&device) {
            Some(answers) => Some(*answers),
            // This is a file system on a block device whose mount no list has (the layers of an
            // overlay). Its kind was chosen by someone who was allowed to mount a block device.
            None if device.0 != 0 => Some(true),
            None => (memory_files() == Some(device)).then_some(true),
        }
    }
}

/// Returns the device of files in memory (memfd, System V, shared anonymous memory). Their mount is
/// in no list.
fn memory_files() -> Option<(u32, u32)> {
    static DEVICE: std::sync::OnceLock<Option<(u32, u32)>> = std::sync::OnceLock::new();
    *DEVICE.get_or_init(|| {
        let file = midair_ptrace::memfd_with(c"midair-look", b"").ok()?;
        Some(sys::lies(&file.into()).ok()?.device)
    })
}

/// Returns number, device and kind of the mount in a line.
fn mount(line: &str) -> Option<(u64, (u32, u32), String)> {
    let (front, back) = line.split_once(" - ")?;
    let mut front = front.split(' ');
    let number = front.next()?.parse().ok()?;
    let (major, minor) = front.nth(1)?.split_once(':')?;
    let kind = back.split(' ').next()?.to_owned();
    Some((number, (major.parse().ok()?, minor.parse().ok()?), kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_file_system_does_not_count() {
        let mut mounts = Mounts::default();
        mounts.add(
            b"22 1 0:21 / /proc rw,relatime shared:5 - proc proc rw\n\
              30 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
              40 30 0:50 / /home/x/a\\040-\\040ext4 rw - fuse.ext4 x rw,user_id=1000\n\
              41 30 8:9 / /mnt rw - fuseblk /dev/sda9 rw\n\
              42 30 0:60 / /new rw - somethingfs x rw\n\
              nonsense\n",
        );
        let at = |mount, device| mounts.answer(&Lies { mount, device });
        assert_eq!(at(Some(22), (0, 21)), Some(true));
        assert_eq!(at(Some(40), (0, 50)), Some(false));
        assert_eq!(at(Some(41), (8, 9)), Some(false));
        assert_eq!(at(Some(42), (0, 60)), Some(false));
        // The place is found by its device alone: before Linux 5.8, and for mappings.
        assert_eq!(at(None, (8, 1)), Some(true));
        assert_eq!(at(None, (0, 50)), Some(false));
        assert_eq!(at(None, (8, 9)), Some(false));
        // The mount is in no list: it was unmounted since (`umount -l`), or is a layer of an
        // overlay.
        assert_eq!(at(Some(99), (0, 99)), None);
        assert_eq!(at(Some(99), (259, 3)), Some(true));
    }

    #[test]
    fn our_own_files_answer() {
        let mounts = Mounts::of(None).unwrap();
        let memory = midair_ptrace::memfd_with(c"x", b"x").unwrap();
        let program = std::fs::File::open("/proc/self/exe").unwrap();
        for file in [memory.into(), program] {
            assert_eq!(mounts.answer(&sys::lies(&file).unwrap()), Some(true));
        }
    }
}
