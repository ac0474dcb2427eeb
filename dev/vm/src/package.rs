//! Rows that another machine boots: what it needs for that, and its results.

use std::fs;
use std::path::Path;
use std::time::Duration;

use midair_dev_kit::run::{At, Failure, Outcome, failed};

use super::boot::{self, Accelerator, Guest, Options, Ran};
use super::programs::Programs;
use super::rows::{ROWS, Row};
use super::{initramfs, kernel, report, results, rootfs, shell};

/// Puts a row into a directory: `ROW.sh`, and the files that it names.
pub fn put(directory: &Path, row: &Row, options: &Options, programs: &Programs) -> Outcome<()> {
    let kernel = kernel::ready(row.kernel)?;
    let root = rootfs::ready(row.kernel.arch)?;
    let accelerator = Accelerator::of(row.kernel.arch, options.emulate);
    let initramfs = initramfs::make(row, &kernel, programs, accelerator, options)?;
    fs::create_dir_all(directory).at("making", directory)?;
    let arch = row.kernel.arch.debian;
    let name = |kind: &str| format!("{}.{kind}", row.name);
    let (kernel_name, initramfs_name, results_name) = (name("kernel"), name("cpio"), name("img"));
    let root_name = format!("root-{arch}.img");
    let programs_name = format!("programs-{arch}.img");
    for (from, to) in [
        (&kernel.image, &kernel_name),
        (&initramfs, &initramfs_name),
        (&root, &root_name),
        (&programs.image, &programs_name),
    ] {
        let to = directory.join(to);
        let arguments = [from.as_os_str(), to.as_os_str()];
        shell(r#"cp --sparse=always --update "$1" "$2""#, &arguments)?;
    }
    let guest = Guest {
        arch: row.kernel.arch,
        kernel_words: row.kernel_words,
        accelerator,
        kernel: Path::new(&kernel_name),
        initramfs: Path::new(&initramfs_name),
        root: Path::new(&root_name),
        programs: Path::new(&programs_name),
        results: Path::new(&results_name),
    };
    let text = script(row, &guest, options, &boot::commit()?);
    let path = directory.join(name("sh"));
    fs::write(&path, text).at("writing", &path)
}

/// Returns a script that boots the row. `QEMU` may hold words before qemu's own.
fn script(row: &Row, guest: &Guest, options: &Options, commit: &str) -> String {
    let quoted = |word: &str| format!("'{}'", word.replace('\'', r"'\''"));
    let words = boot::words(guest, options);
    let words: Vec<String> = words
        .iter()
        .map(|it| quoted(&it.to_string_lossy()))
        .collect();
    let only = options.only.as_deref().unwrap_or_default();
    let ran = quoted(&format!("{} {commit} {only}", guest.accelerator.name()));
    let limit = boot::limit(row, guest.accelerator).as_secs();
    format!(
        "#!/bin/sh\n\
         # Made by cargo vm --package: {about}.\n\
         set -u\n\
         cd \"$(dirname \"$0\")\" || exit\n\
         rm -rf {name}.img {name}.results\n\
         truncate -s {size} {name}.img\n\
         began=$(date +%s)\n\
         timeout {limit} ${{QEMU-}} {words} > {name}.console 2>&1 < /dev/null\n\
         seconds=$(($(date +%s) - began))\n\
         grep -q '@@ done' {name}.console || exit 1\n\
         mkdir {name}.results\n\
         tar -xf {name}.img -C {name}.results\n\
         rm {name}.img\n\
         echo \"$seconds\" {ran} > {name}.results/boot\n",
        about = row.about,
        name = row.name,
        size = boot::RESULTS,
        words = words.join(" "),
    )
}

/// Puts the results in a directory into the table.
pub fn take(directory: &Path) -> Outcome<()> {
    let mut taken = 0;
    for row in ROWS {
        let there = directory.join(format!("{}.results", row.name));
        let file = there.join("boot");
        let Ok(text) = fs::read_to_string(&file) else {
            continue;
        };
        let Some((took, processor, commit, only)) = about(&text) else {
            return failed(format!("{}: not made by ROW.sh", file.display()));
        };
        let ran = Ran {
            results: there,
            took,
            processor,
            commit,
        };
        let results = results::read(&ran)?;
        println!("{}: {}", row.name, results.summary());
        let kernel = kernel::ready(row.kernel)?;
        report::put(row, &kernel, &ran, &results, only.as_deref())?;
        taken += 1;
    }
    match taken {
        0 => Err(Failure(format!("no results in {}", directory.display()))),
        _ => Ok(()),
    }
}

/// Reads what the script wrote: seconds, processor, commit, and the regular expression of the only
/// tests if not all were run.
fn about(text: &str) -> Option<(Duration, String, String, Option<String>)> {
    let mut words = text.trim_end().splitn(4, ' ');
    let seconds = words.next()?.parse().ok()?;
    let (processor, commit) = (words.next()?, words.next()?);
    Some((
        Duration::from_secs(seconds),
        processor.to_owned(),
        commit.to_owned(),
        words.next().filter(|it| !it.is_empty()).map(str::to_owned),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    /// A stand-in for qemu writes the results to the last disk, as a guest does.
    #[test]
    fn the_script_boots_the_row_and_keeps_its_results() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let row = ROWS.iter().find(|row| row.name == "yama").unwrap();
        let guest = Guest {
            arch: row.kernel.arch,
            kernel_words: "a 'quoted' word",
            accelerator: Accelerator::Tcg,
            kernel: Path::new("yama.kernel"),
            initramfs: Path::new("yama.cpio"),
            root: Path::new("root.img"),
            programs: Path::new("programs.img"),
            results: Path::new("yama.img"),
        };
        let options = Options {
            processors: Some(3),
            only: Some("^a b's $(c)|d".to_owned()),
            ..Options::default()
        };
        fs::write(at("yama.sh"), script(row, &guest, &options, "abc-dirty")).unwrap();
        let qemu = "#!/bin/sh\nprintf '%s\\n' \"$@\" > words\necho 6.1 > kernel\ntar -cf yama.img kernel\necho \"$END\"\n";
        fs::write(at("qemu"), qemu).unwrap();
        fs::set_permissions(at("qemu"), fs::Permissions::from_mode(0o755)).unwrap();
        let run = |end: &str| {
            let mut sh = Command::new("sh");
            sh.arg(at("yama.sh")).env("QEMU", "./qemu").env("END", end);
            sh.status().unwrap().success()
        };
        assert!(!run("@@ a guest that broke off"));
        assert!(!at("yama.results").exists());
        assert!(run("@@ done"));
        let words = fs::read_to_string(at("words")).unwrap();
        let words: Vec<&str> = words.lines().collect();
        assert_eq!(words[0], "qemu-system-x86_64");
        let after = |name: &str| words[words.iter().position(|it| *it == name).unwrap() + 1];
        assert_eq!(after("-smp"), "3");
        assert!(after("-append").ends_with(" a 'quoted' word"));
        let kernel = fs::read_to_string(at("yama.results/kernel")).unwrap();
        assert_eq!(kernel, "6.1\n");
        let text = fs::read_to_string(at("yama.results/boot")).unwrap();
        let (took, processor, commit, only) = about(&text).unwrap();
        assert!(took < Duration::from_secs(60));
        assert_eq!((processor.as_str(), commit.as_str()), ("TCG", "abc-dirty"));
        assert_eq!(only.as_deref(), Some("^a b's $(c)|d"));
        assert_eq!(about("12 TCG"), None);
    }
}
