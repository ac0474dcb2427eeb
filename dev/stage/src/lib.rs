//! Builds what is shipped and lays it out.
//!
//! A file that is already right is left alone. One that is not is replaced by a rename, so that a
//! process which has the old library mapped keeps it and does not suddenly find other bytes in it.
#![forbid(unsafe_code)]

pub mod headers;
pub mod layout;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use midair_stand_in::{StandIn, made_from};

use crate::layout::{
    DEMO, GENERATED, ITEMS, ITEMS_OF_DEMO, Item, PACKAGES, PACKAGES_OF_DEMO, Source,
};
use midair_dev_kit::machine::Machine;
use midair_dev_kit::run::{
    At, Failure, Outcome, cargo, failed, output, root, run, target_directory,
};

/// The way in which the shipped files are built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Build {
    /// As the tests use them: with assertions, and little optimised.
    Debug,
    /// As users get them.
    Release,
    /// Without assertions, as users get them, but not optimised. It is for the suite, which only
    /// asks whether the product works. It has an output directory of its own, below the name of the
    /// target, and shares the build scripts and procedural macros of [`Build::Debug`].
    Unchecked,
}

/// cargo's name for this machine.
const TARGET: &str = if cfg!(target_arch = "aarch64") {
    "aarch64-unknown-linux-gnu"
} else {
    "x86_64-unknown-linux-gnu"
};

/// Settings of cargo for [`Build::Unchecked`]. Build scripts and macros keep their assertions, so
/// that cargo does not build them again.
const UNCHECKED: [&str; 5] = [
    "profile.dev.debug-assertions=false",
    "profile.dev.overflow-checks=false",
    "profile.dev.debug=false",
    "profile.dev.build-override.debug-assertions=true",
    "profile.dev.build-override.overflow-checks=true",
];

/// Runs `cargo xtask stage`.
pub fn stage_task(words: &[String]) -> Outcome<()> {
    let build = match words {
        [] => Build::Debug,
        [word] if word == "--release" => Build::Release,
        _ => return failed("takes --release or nothing"),
    };
    let prefix = stage(build)?;
    println!("staged: {}", prefix.display());
    Ok(())
}

/// Runs `cargo xtask install`.
pub fn install_task(words: &[String]) -> Outcome<()> {
    let mut prefix = None;
    let mut build = Build::Release;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--prefix" => prefix = words.next().map(PathBuf::from),
            "--dev" => build = Build::Debug,
            _ => return failed(format!("takes --prefix DIR and --dev, not {word}")),
        }
    }
    let Some(prefix) = prefix else {
        return failed("needs --prefix DIR");
    };
    let staged = stage(build)?;
    let mut kept = BTreeSet::new();
    copy_tree(&staged, &prefix, &mut kept)?;
    println!("installed below {}: {} files", prefix.display(), kept.len());
    Ok(())
}

/// Builds and stages. Returns the prefix.
pub fn stage(build: Build) -> Outcome<PathBuf> {
    match build {
        // As the suite builds it. When packages are chosen, libraries of others have other features, and
        // all that is above those would be compiled a second time.
        Build::Debug => run(&mut cargo(&["build", "--workspace", "--lib", "--bins"]))?,
        Build::Release | Build::Unchecked => compile(build, PACKAGES)?,
    }
    stage_built(build)
}

fn compile(build: Build, packages: &[&str]) -> Outcome<()> {
    let mut command = cargo(&["build"]);
    for package in packages {
        command.args(["--package", package]);
    }
    match build {
        Build::Debug => {}
        Build::Unchecked => {
            command.args(["--target", TARGET]);
            for setting in UNCHECKED {
                command.args(["--config", setting]);
            }
        }
        Build::Release => {
            command.arg("--release");
            // This is done only in release builds, because otherwise each commit would compile the
            // command lines again.
            let mut git = Command::new("git");
            if let Ok(revision) = output(git.args(["rev-parse", "HEAD"]).current_dir(root())) {
                let revision = String::from_utf8_lossy(&revision);
                command.env("MIDAIR_GIT_REVISION", revision.trim());
            }
        }
    }
    run(&mut command)
}

/// Builds only what `midair demo` needs, and lays it out in a directory of its own. Returns that.
pub fn stage_demo(build: Build) -> Outcome<PathBuf> {
    compile(build, PACKAGES_OF_DEMO)?;
    let (built, prefix) = (
        built_directory(build),
        target_directory().join(match build {
            Build::Debug => "demo-stage",
            Build::Release => "demo-stage-release",
            Build::Unchecked => "demo-stage-unchecked",
        }),
    );
    let items = ITEMS.iter().filter(|item| ITEMS_OF_DEMO.contains(&item.to));
    let mut staged = lay_out(&root(), &built, &prefix, items)?;
    demonstration(&built, &prefix, Machine::here(), &mut staged.kept)?;
    remove_others(&prefix, &staged.kept)?;
    whole(&prefix, &staged)?;
    Ok(prefix)
}

fn built_directory(build: Build) -> PathBuf {
    target_directory().join(match build {
        Build::Debug => PathBuf::from("debug"),
        Build::Release => PathBuf::from("release"),
        Build::Unchecked => Path::new(TARGET).join("debug"),
    })
}

/// Stages what is built already. Returns the prefix.
pub fn stage_built(build: Build) -> Outcome<PathBuf> {
    let prefix = target_directory().join("stage");
    let built = built_directory(build);
    // Without a record the stage counts as old, also when we are ended on the way.
    let record = made_from::record_of(&prefix);
    let _ = fs::remove_file(&record);
    stage_from(&built, &prefix)?;
    made_from::write(&root(), &prefix, &sources(&root(), &built)?).at("writing", &record)?;
    Ok(prefix)
}

/// Files that the stage depends on and that no dependency information of cargo names.
const OTHER_SOURCES: &[&str] = &[
    ".cargo/config.toml",
    "Cargo.lock",
    "Cargo.toml",
    "rust-toolchain.toml",
    "sim/stand-in/c/workload.c",
    "sim/stand-in/src/topology.rs",
    "dev/stage/src/headers.rs",
    "dev/stage/src/layout.rs",
];

/// Returns everything that the stage is made from, relative to the project.
fn sources(project: &Path, built: &Path) -> Outcome<BTreeSet<PathBuf>> {
    let mut found: BTreeSet<PathBuf> = OTHER_SOURCES.iter().map(PathBuf::from).collect();
    let libraries = midair_stand_in::LIBRARIES.map(|(name, _)| Source::Built(name));
    for source in ITEMS.iter().map(|item| item.source).chain(libraries) {
        match source {
            Source::Built(name) => {
                let information = built.join(name).with_extension("d");
                let text = fs::read_to_string(&information).at("reading", &information)?;
                found.extend(made_from::sources_of(project, &text));
            }
            Source::File(name) => {
                found.insert(name.into());
            }
            Source::Tree(name) => files_below(project, Path::new(name), &mut found)?,
        }
    }
    // The manifests of the packages that these belong to.
    let manifests: BTreeSet<PathBuf> = found
        .iter()
        .flat_map(|source| source.ancestors().skip(1))
        .map(|directory| directory.join("Cargo.toml"))
        .filter(|manifest| project.join(manifest).is_file())
        .collect();
    found.extend(manifests);
    Ok(found)
}

fn files_below(project: &Path, directory: &Path, found: &mut BTreeSet<PathBuf>) -> Outcome<()> {
    let path = project.join(directory);
    for entry in fs::read_dir(&path)
        .at("listing", &path)?
        .filter_map(Result::ok)
    {
        let name = directory.join(entry.file_name());
        match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            true => files_below(project, &name, found)?,
            false => {
                found.insert(name);
            }
        }
    }
    Ok(())
}

/// Stages what was built into the directory `built` below this prefix.
pub fn stage_from(built: &Path, prefix: &Path) -> Outcome<()> {
    stage_for(built, prefix, Machine::here())
}

/// The same for another machine.
pub fn stage_for(built: &Path, prefix: &Path, machine: &'static Machine) -> Outcome<()> {
    let mut staged = lay_out(&root(), built, prefix, ITEMS)?;
    demonstration(built, prefix, machine, &mut staged.kept)?;
    // Pages and completions come from the program of this machine, which can be run.
    let midair = match machine.cross() {
        None => prefix.join("bin/midair"),
        Some(_) => own_program()?,
    };
    generate(&midair, prefix, &mut staged)?;
    remove_others(prefix, &staged.kept)?;
    whole(prefix, &staged)
}

/// Fails if something is missing, and names it.
fn whole(prefix: &Path, staged: &Staged) -> Outcome<()> {
    if staged.missing.is_empty() {
        return Ok(());
    }
    failed(format!(
        "{} is staged, but for {}",
        prefix.display(),
        staged.missing.join(", ")
    ))
}

/// The result of laying out.
#[derive(Debug, Default)]
pub struct Staged {
    /// The files and links that belong there.
    pub kept: BTreeSet<PathBuf>,
    /// What could not be had, with its place and the reason.
    pub missing: Vec<String>,
}

/// Lays out items, for which no program must be run.
pub fn lay_out<'a>(
    project: &Path,
    built: &Path,
    prefix: &Path,
    items: impl IntoIterator<Item = &'a Item>,
) -> Outcome<Staged> {
    let mut staged = Staged::default();
    for item in items {
        let source = item.path(project, built);
        if !source.exists() {
            staged
                .missing
                .push(format!("{} (no {})", item.to, source.display()));
            continue;
        }
        place(item, &source, prefix, &mut staged.kept)?;
    }
    Ok(staged)
}

fn place(item: &Item, source: &Path, prefix: &Path, kept: &mut BTreeSet<PathBuf>) -> Outcome<()> {
    let to = prefix.join(item.to);
    if matches!(item.source, Source::Tree(_)) {
        return copy_tree(source, &to, kept);
    }
    let bytes = fs::read(source).at("reading", source)?;
    write_if_other(&to, &bytes, if item.executable { 0o755 } else { 0o644 })?;
    for link in item.links {
        let link = to.with_file_name(link);
        let target = PathBuf::from(to.file_name().unwrap_or_default());
        link_if_other(&link, &target)?;
        kept.insert(link);
    }
    kept.insert(to);
    Ok(())
}

/// Lays out what `midair demo` starts: the stand-in runtimes, their machine, and a program on them.
fn demonstration(
    built: &Path,
    prefix: &Path,
    machine: &Machine,
    kept: &mut BTreeSet<PathBuf>,
) -> Outcome<()> {
    let made = built.join("midair-demo");
    let laid_out = StandIn::lay_out(built, &made)
        .and_then(|stand_in| stand_in.workload(&machine.tool("gcc")).map(|_| stand_in));
    let stand_in = laid_out.map_err(|error| Failure(format!("the stand-in runtimes: {error}")))?;
    copy_tree(stand_in.dir(), &prefix.join(DEMO), kept)
}

/// The command line as this machine can run it.
fn own_program() -> Outcome<PathBuf> {
    run(&mut cargo(&[
        "build",
        "--package",
        "midair-cli",
        "--bin",
        "midair",
    ]))?;
    Ok(target_directory().join("debug/midair"))
}

fn generate(midair: &Path, prefix: &Path, staged: &mut Staged) -> Outcome<()> {
    for (words, to) in GENERATED {
        let text = output(Command::new(midair).args(*words))?;
        let to = prefix.join(to);
        write_if_other(&to, &text, 0o644)?;
        staged.kept.insert(to);
    }
    for (to, text) in headers::generate()? {
        let to = prefix.join(to);
        write_if_other(&to, text.as_bytes(), 0o644)?;
        staged.kept.insert(to);
    }
    Ok(())
}

fn copy_tree(from: &Path, to: &Path, kept: &mut BTreeSet<PathBuf>) -> Outcome<()> {
    let mut entries: Vec<_> = fs::read_dir(from)
        .at("listing", from)?
        .filter_map(Result::ok)
        .collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().at("looking at", &source)?;
        if kind.is_dir() {
            copy_tree(&source, &target, kept)?;
            continue;
        }
        if kind.is_symlink() {
            let link = fs::read_link(&source).at("reading", &source)?;
            link_if_other(&target, &link)?;
        } else {
            let bytes = fs::read(&source).at("reading", &source)?;
            let mode = fs::metadata(&source)
                .at("looking at", &source)?
                .permissions()
                .mode();
            write_if_other(
                &target,
                &bytes,
                if mode & 0o111 == 0 { 0o644 } else { 0o755 },
            )?;
        }
        kept.insert(target);
    }
    Ok(())
}

fn write_if_other(to: &Path, bytes: &[u8], mode: u32) -> Outcome<()> {
    let is_file = fs::symlink_metadata(to)
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o777 == mode);
    if is_file && fs::read(to).is_ok_and(|found| found == bytes) {
        return Ok(());
    }
    replace(to, |new| {
        fs::write(new, bytes)?;
        fs::set_permissions(new, fs::Permissions::from_mode(mode))
    })
}

fn link_if_other(link: &Path, target: &Path) -> Outcome<()> {
    if fs::read_link(link).is_ok_and(|found| found == target) {
        return Ok(());
    }
    replace(link, |new| symlink(target, new))
}

/// Makes a file next to its place and renames it.
fn replace(to: &Path, make: impl FnOnce(&Path) -> std::io::Result<()>) -> Outcome<()> {
    let directory = to.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(directory).at("making", directory)?;
    let name = to.file_name().unwrap_or_default().to_string_lossy();
    let new = directory.join(format!(".{name}.{}", std::process::id()));
    // A run that was killed may have left this file.
    let _ = fs::remove_file(&new);
    let result = make(&new).and_then(|()| fs::rename(&new, to));
    if result.is_err() {
        let _ = fs::remove_file(&new);
    }
    result.at("writing", to)
}

/// Removes what an earlier layout left.
fn remove_others(directory: &Path, kept: &BTreeSet<PathBuf>) -> Outcome<()> {
    for entry in fs::read_dir(directory)
        .at("listing", directory)?
        .filter_map(Result::ok)
    {
        let path = entry.path();
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_directory && kept.iter().any(|file| file.starts_with(&path)) {
            remove_others(&path, kept)?;
        } else if is_directory {
            fs::remove_dir_all(&path).at("removing", &path)?;
        } else if !kept.contains(&path) {
            fs::remove_file(&path).at("removing", &path)?;
        }
    }
    Ok(())
}

/// Returns the staged command line, for tasks that run it.
pub fn staged_program(prefix: &Path, name: &str) -> Outcome<PathBuf> {
    let program = prefix.join("bin").join(name);
    if program.exists() {
        Ok(program)
    } else {
        Err(Failure(format!("{} is not there", program.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    /// Makes a project and a build output with something in every place.
    fn fixture() -> (tempfile::TempDir, PathBuf, PathBuf, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let (project, built, prefix) = (
            directory.path().join("project"),
            directory.path().join("built"),
            directory.path().join("stage"),
        );
        for item in ITEMS {
            let source = item.path(&project, &built);
            let file = if matches!(item.source, Source::Tree(_)) {
                source.join("sub/x.h")
            } else {
                source
            };
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, item.to).unwrap();
        }
        (directory, project, built, prefix)
    }

    #[test]
    fn everything_lies_where_the_layout_says() {
        let (_directory, project, built, prefix) = fixture();
        let staged = lay_out(&project, &built, &prefix, ITEMS).unwrap();
        assert!(staged.missing.is_empty(), "{:?}", staged.missing);
        for item in ITEMS
            .iter()
            .filter(|item| !matches!(item.source, Source::Tree(_)))
        {
            let to = prefix.join(item.to);
            assert_eq!(
                fs::read(&to).unwrap(),
                fs::read(item.path(&project, &built)).unwrap()
            );
            assert_eq!(
                fs::metadata(&to).unwrap().mode() & 0o777,
                if item.executable { 0o755 } else { 0o644 },
                "{}",
                item.to
            );
            for link in item.links {
                let link = to.with_file_name(link);
                assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
                assert!(
                    fs::read_link(&link).unwrap().is_relative(),
                    "{} must move with the prefix",
                    link.display()
                );
                assert_eq!(fs::read(&link).unwrap(), fs::read(&to).unwrap());
            }
        }
        assert!(prefix.join("include/sub/x.h").exists());
        let linked = prefix.join("lib/librocprofiler-attach.so");
        assert_eq!(
            fs::read_to_string(linked).unwrap(),
            "lib/librocprofiler-sdk-rocattach.so.1"
        );
    }

    #[test]
    fn what_is_right_is_left_alone_and_what_changed_gets_a_new_inode() {
        let (_directory, project, built, prefix) = fixture();
        lay_out(&project, &built, &prefix, ITEMS).unwrap();
        let inode = |name: &str| fs::metadata(prefix.join(name)).unwrap().ino();
        let (sdk, tool) = (
            "lib/librocprofiler-sdk.so.1",
            "lib/rocprofiler-sdk/librocprofiler-sdk-tool.so.1",
        );
        let before = (inode(sdk), inode(tool));
        fs::write(built.join("librocprofiler_sdk.so"), "new").unwrap();
        lay_out(&project, &built, &prefix, ITEMS).unwrap();
        assert_ne!(
            inode(sdk),
            before.0,
            "a mapped library would have been overwritten"
        );
        assert_eq!(inode(tool), before.1);
        assert_eq!(fs::read_to_string(prefix.join(sdk)).unwrap(), "new");
    }

    #[test]
    fn what_is_missing_is_named_and_the_rest_is_laid_out() {
        let (_directory, project, built, prefix) = fixture();
        fs::remove_file(built.join("librocprofiler_register.so")).unwrap();
        let staged = lay_out(&project, &built, &prefix, ITEMS).unwrap();
        assert_eq!(staged.missing.len(), 1);
        assert!(
            staged.missing[0].starts_with("lib/librocprofiler-register.so.0 (no "),
            "{:?}",
            staged.missing
        );
        assert!(prefix.join("bin/midair").exists());
    }

    #[test]
    fn leftovers_go_and_a_copy_is_whole() {
        let (directory, project, built, prefix) = fixture();
        let staged = lay_out(&project, &built, &prefix, ITEMS).unwrap();
        fs::create_dir_all(prefix.join("old/deep")).unwrap();
        fs::write(prefix.join("lib/librocprofiler-old.so.9"), "").unwrap();
        remove_others(&prefix, &staged.kept).unwrap();
        assert!(
            !prefix.join("old").exists() && !prefix.join("lib/librocprofiler-old.so.9").exists()
        );

        let installed = directory.path().join("usr");
        let mut kept = BTreeSet::new();
        copy_tree(&prefix, &installed, &mut kept).unwrap();
        assert_eq!(kept.len(), staged.kept.len());
        let link = installed.join("lib/librocprofv3-attach.so");
        assert_eq!(
            fs::read_link(link).unwrap(),
            Path::new("librocprofiler-sdk-rocattach.so.1")
        );
    }
}
