//! The initramfs with which a kernel starts: busybox, the modules for its disks, and the row's job.

use std::fs;
use std::path::{Path, PathBuf};

use midair_dev_kit::run::{At, Outcome, root, target_directory};

use super::boot::{Accelerator, Options};
use super::kernel::Ready;
use super::programs::Programs;
use super::rootfs::busybox;
use super::rows::Row;
use super::{emptied, shell};

/// Modules in the order in which they are loaded. Modules that are built into a kernel have no
/// file.
const MODULES: &[&str] = &[
    "virtio",
    "virtio_ring",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "virtio_blk",
    "fuse",
    "overlay",
];

const INIT: &str = include_str!("guest/init.sh");
/// The scripts in the initramfs.
const SCRIPTS: &[(&str, &str)] = &[
    ("main.sh", include_str!("guest/main.sh")),
    ("tests.sh", include_str!("guest/tests.sh")),
];

/// Makes the initramfs. The next row's replaces the file.
pub fn make(
    row: &Row,
    kernel: &Ready,
    programs: &Programs,
    accelerator: Accelerator,
    options: &Options,
) -> Outcome<PathBuf> {
    let work = target_directory().join("vm");
    let tree = emptied(work.join(format!("{}.initramfs", row.name)))?;
    for name in ["bin", "proc", "sys", "dev", "root", "modules", "job"] {
        let path = tree.join(name);
        fs::create_dir(&path).at("making", &path)?;
    }
    let shell_program = tree.join("bin/busybox");
    fs::copy(busybox(row.kernel.arch)?, &shell_program).at("writing", &shell_program)?;
    let put = |name: &str, text: &str| {
        let path = tree.join(name);
        fs::write(&path, text).at("writing", &path)
    };
    put("init", INIT)?;
    for (name, text) in SCRIPTS {
        put(&format!("job/{name}"), text)?;
    }
    let list: String = programs
        .programs
        .iter()
        .map(|it| {
            format!(
                "{}\t{}\t{}\n",
                it.name,
                it.path.display(),
                it.directory.display()
            )
        })
        .collect();
    put("job/programs", &list)?;
    put("job/parts", &row.parts.join("\n"))?;
    put(
        "job/settings",
        &format!(
            "WORK={}\nBUILT={}\nSTAGE={}\nFACTOR={}\nBUDGET={}\nONLY='{}'\nCHECKS='{}'\n",
            root().canonicalize().at("finding", &root())?.display(),
            programs.built.display(),
            programs.stage.display(),
            accelerator.factor(),
            options.minutes.unwrap_or(row.minutes) * 60,
            options.only.as_deref().unwrap_or_default(),
            row.checks.join(" "),
        ),
    )?;
    modules(&kernel.modules, &tree.join("modules"))?;
    let image = work.join(format!("{}.cpio", row.name));
    shell(
        r#"chmod 755 "$1/init" "$1/bin/busybox"; cd "$1"; find . | cpio --quiet -o -H newc > "$2""#,
        &[tree.as_os_str(), image.as_os_str()],
    )?;
    Ok(image)
}

/// Copies the modules that have a file, unpacked, and writes down their order.
fn modules(from: &Path, to: &Path) -> Outcome<()> {
    shell(
        r#"from=$1; to=$2; shift 2; : > "$to/order"
for name; do
    file=$(find "$from" -name "$name.ko*" | head -n 1)
    case $file in
        '') continue ;;
        *.xz) xz --decompress --stdout "$file" > "$to/$name.ko" ;;
        *) cp "$file" "$to/$name.ko" ;;
    esac
    echo "$name.ko" >> "$to/order"
done"#,
        &[from.as_os_str(), to.as_os_str()]
            .into_iter()
            .chain(MODULES.iter().map(std::ffi::OsStr::new))
            .collect::<Vec<_>>(),
    )
}
