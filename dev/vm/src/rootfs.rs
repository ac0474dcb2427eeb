//! Makes the guests' root file system: Debian 12's packages unpacked into a directory, and an image
//! of it. No package's scripts are run, so it can be made for any machine type.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use midair_dev_kit::run::{At, Outcome};

use super::kernel::{AMD64, Arch, BOOKWORM};
use super::packages::{Apt, unpack};
use super::{cache, emptied, shell};

/// Packages for the tests: a compiler for their C programs, the programs that they start, and what
/// the torture matrix needs.
const PACKAGES: &[&str] = &[
    "apparmor",
    "attr",
    "base-files",
    "base-passwd",
    "bash",
    "busybox-static",
    "coreutils",
    "dash",
    "diffutils",
    "findutils",
    "fuse3",
    "gawk",
    "gcc",
    "gdb-minimal",
    "grep",
    "gzip",
    "hostname",
    "iproute2",
    "kmod",
    "libc6-dev",
    "libcap2-bin",
    "libjemalloc2",
    "libtcmalloc-minimal4",
    "mount",
    "procps",
    "psmisc",
    "python3",
    "sed",
    "strace",
    "tar",
    "util-linux",
];

/// Packages for the machine type with the row for SELinux.
const POLICY: &[&str] = &["policycoreutils", "selinux-policy-default", "selinux-utils"];

/// A number to change when the directory must be made again.
const EDITION: &str = "2";

/// Does what the packages' scripts would have done.
const SCRIPTS: &str = r#"cd "$1"
install -m 644 usr/share/base-passwd/passwd.master etc/passwd
install -m 644 usr/share/base-passwd/group.master etc/group
[ -e bin/sh ] || ln -s dash bin/sh
[ -e usr/bin/awk ] || ln -s gawk usr/bin/awk
ln -sf gcc usr/bin/cc
echo midair-vm > etc/hostname
echo 127.0.0.1 localhost midair-vm > etc/hosts
echo 0123456789abcdef0123456789abcdef > etc/machine-id
mkdir -p proc sys dev run tmp root var/tmp job results
chmod 1777 tmp var/tmp"#;

/// Makes the policy from its modules, as the package's script does. The files of the image get one
/// label when it is mounted ("guest/init.sh").
const MAKE_POLICY: &str = r#"cd "$1"
printf 'SELINUX=permissive\nSELINUXTYPE=default\n' > etc/selinux/config
chroot . bash -ec 'cd /usr/share/selinux/default
semodule -n -s default -i base.pp.bz2 $(ls | grep -v "^base[.]")'"#;

/// Returns the image for a machine type, and makes it if necessary.
pub fn ready(arch: Arch) -> Outcome<PathBuf> {
    let image = cache().join(format!("root-{}.img", arch.debian));
    let mark = cache().join(format!("root-{}.edition", arch.debian));
    let mut packages = PACKAGES.to_vec();
    if arch == AMD64 {
        packages.extend(POLICY);
    }
    let edition = format!("{EDITION} {}", packages.join(" "));
    if image.exists() && fs::read_to_string(&mark).is_ok_and(|made| made == edition) {
        return Ok(image);
    }
    let apt = Apt::ready(BOOKWORM, arch.debian)?;
    let files = apt.closure(&packages)?;
    println!("root file system {}: {} packages", arch.debian, files.len());
    let directory = emptied(cache().join(format!("root-{}", arch.debian)))?;
    for name in ["bin", "lib", "lib64", "sbin"] {
        let target = Path::new("usr").join(name);
        let real = directory.join(&target);
        fs::create_dir_all(&real).at("making", &real)?;
        let link = directory.join(name);
        symlink(&target, &link).at("linking", &link)?;
    }
    for file in files {
        unpack(&file, &directory)?;
    }
    shell(SCRIPTS, &[directory.as_os_str()])?;
    if arch == AMD64 {
        shell(MAKE_POLICY, &[directory.as_os_str()])?;
    }
    make_image(&directory, &image, "4G")?;
    fs::remove_dir_all(&directory).at("removing", &directory)?;
    fs::write(&mark, edition).at("writing", &mark)?;
    Ok(image)
}

/// Returns the `busybox` for the initramfs. The root file system is not kept as a directory, so it
/// is fetched separately.
pub fn busybox(arch: Arch) -> Outcome<PathBuf> {
    let directory = cache().join(format!("busybox-{}", arch.debian));
    let program = directory.join("bin/busybox");
    if !program.exists() {
        let apt = Apt::ready(BOOKWORM, arch.debian)?;
        let downloads = cache().join("downloads/busybox");
        emptied(directory.clone())?;
        for file in apt.download(&["busybox-static".to_owned()], downloads)? {
            unpack(&file, &directory)?;
        }
    }
    Ok(program)
}

/// Makes an ext4 image of a directory. It takes no more room on the disk than its contents.
pub fn make_image(directory: &Path, image: &Path, size: &str) -> Outcome<()> {
    let arguments: [&OsStr; 3] = [image.as_os_str(), directory.as_os_str(), OsStr::new(size)];
    shell(
        r#"rm -f "$1"; mke2fs -q -F -t ext4 -E lazy_itable_init=1,nodiscard -d "$2" "$1" "$3""#,
        &arguments,
    )
}
