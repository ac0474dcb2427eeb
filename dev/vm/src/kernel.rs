//! Fetches and unpacks Debian's kernels.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use midair_dev_kit::run::{At, Outcome, failed};

use super::packages::{Apt, Suite, unpack};
use super::{cache, emptied, shell};

/// A machine type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arch {
    /// Debian's name for it.
    pub debian: &'static str,
    /// qemu's name for it.
    pub qemu: &'static str,
    /// The name of its first serial line.
    pub console: &'static str,
}

pub const AMD64: Arch = Arch {
    debian: "amd64",
    qemu: "x86_64",
    console: "ttyS0",
};

pub const ARM64: Arch = Arch {
    debian: "arm64",
    qemu: "aarch64",
    console: "ttyAMA0",
};

/// The suite whose user space runs on all kernels. It is the one on which the project is built.
pub const BOOKWORM: Suite = Suite {
    name: "bookworm",
    sources: &["http://deb.debian.org/debian bookworm"],
};

const BULLSEYE: Suite = Suite {
    name: "bullseye-security",
    sources: &["http://deb.debian.org/debian-security bullseye-security"],
};

const TRIXIE: Suite = Suite {
    name: "trixie",
    sources: &["http://deb.debian.org/debian trixie"],
};

const NEWEST: Suite = Suite {
    name: "trixie-backports",
    sources: &["http://deb.debian.org/debian trixie-backports"],
};

/// A kernel of a Debian suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernel {
    pub name: &'static str,
    pub suite: Suite,
    pub arch: Arch,
}

const fn kernel(name: &'static str, suite: Suite, arch: Arch) -> Kernel {
    Kernel { name, suite, arch }
}

pub const V5_10: Kernel = kernel("5.10", BULLSEYE, AMD64);
pub const V6_1: Kernel = kernel("6.1", BOOKWORM, AMD64);
pub const V6_12: Kernel = kernel("6.12", TRIXIE, AMD64);
pub const LATEST: Kernel = kernel("newest", NEWEST, AMD64);
pub const ARM_6_1: Kernel = kernel("6.1 arm64", BOOKWORM, ARM64);
pub const ARM_LATEST: Kernel = kernel("newest arm64", NEWEST, ARM64);

/// A kernel that is ready to be booted.
pub struct Ready {
    /// The output of `uname -r`.
    pub release: String,
    /// The file that qemu loads.
    pub image: PathBuf,
    /// The directory with its modules.
    pub modules: PathBuf,
}

/// Fetches the kernel, unless it is there already.
pub fn ready(kernel: Kernel) -> Outcome<Ready> {
    let name = kernel.name.replace(' ', "-");
    let directory = cache().join("kernels").join(&name);
    let mark = directory.join("ready");
    if !mark.exists() {
        let arch = kernel.arch.debian;
        let apt = Apt::ready(kernel.suite, arch)?;
        let meta = format!("linux-image-cloud-{arch}");
        let parts = ["linux-image-", "linux-modules-", "linux-binary-"];
        let packages = apt.family(&meta, &parts)?;
        println!("kernel {}: {}", kernel.name, packages.join(" "));
        emptied(directory.clone())?;
        for package in apt.download(&packages, cache().join("downloads").join(&name))? {
            unpack(&package, &directory)?;
        }
        unwrapped(&directory, &find(&directory)?)?;
        fs::write(&mark, "").at("writing", &mark)?;
    }
    find(&directory)
}

/// Finds the kernel and its modules. Older packages have `/boot/vmlinuz-RELEASE` and
/// `/lib/modules`, and newer ones have both in `/usr`.
fn find(directory: &Path) -> Outcome<Ready> {
    for modules in ["lib/modules", "usr/lib/modules"] {
        let modules = directory.join(modules);
        let Ok(mut entries) = fs::read_dir(&modules) else {
            continue;
        };
        let Some(Ok(entry)) = entries.next() else {
            continue;
        };
        let release = entry.file_name().to_string_lossy().into_owned();
        let modules = entry.path();
        let images = [
            directory.join("unwrapped"),
            directory.join(format!("boot/vmlinuz-{release}")),
            modules.join("vmlinuz"),
        ];
        if let Some(image) = images.into_iter().find(|path| path.exists()) {
            return Ok(Ready {
                release,
                image,
                modules,
            });
        }
    }
    failed(format!("no kernel in {}", directory.display()))
}

/// Unpacks an arm64 kernel. It may be inside a program for EFI, which Debian 12's qemu does not
/// load.
///
/// Source: Linux, `drivers/firmware/efi/libstub/zboot-header.S`.
fn unwrapped(directory: &Path, ready: &Ready) -> Outcome<()> {
    let bytes = fs::read(&ready.image).at("reading", &ready.image)?;
    let word = |at: usize| -> Option<usize> {
        let word = bytes.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(word)).ok()
    };
    let payload = match (bytes.get(4..8), word(8), word(12)) {
        (Some(b"zimg"), Some(at), Some(len)) => bytes.get(at..at + len),
        _ => return Ok(()),
    };
    let kind = bytes.get(0x18..0x20).unwrap_or_default();
    let program = match kind {
        kind if kind.starts_with(b"gzip") => "gzip",
        kind if kind.starts_with(b"zstd") => "zstd",
        kind if kind.starts_with(b"xz") => "xz",
        _ => return failed(format!("{}: packed otherwise", ready.image.display())),
    };
    let packed = directory.join("payload");
    fs::write(&packed, payload.unwrap_or_default()).at("writing", &packed)?;
    let to = directory.join("unwrapped");
    let arguments: [&OsStr; 3] = [OsStr::new(program), packed.as_os_str(), to.as_os_str()];
    shell(r#""$1" --decompress --stdout < "$2" > "$3""#, &arguments)
}
