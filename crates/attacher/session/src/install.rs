//! Finds our own libraries: in the program itself, or next to the program or library that contains
//! this code.

use crate::carried::Carried;
use crate::rights;
use midair_failure::{Failure, Kind};
use midair_procinfo::Tid;
use midair_procinfo::files::Place;
use midair_settings::Settings;
use std::fs::File;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The SDK, relative to the library directory.
const SDK: &str = "librocprofiler-sdk.so.1";
/// The library that records CUDA, next to the SDK.
const CUDA: &str = "libmidair-cuda.so";
/// The default tool, relative to the library directory.
const TOOL: &str = "rocprofiler-sdk/librocprofiler-sdk-tool.so.1";
/// What `midair demo` starts, relative to the library directory.
const DEMO: &str = "midair-demo";
/// The C API. Where another program has loaded it, its path shows where the library directory is.
const ROCATTACH: &str = "librocprofiler-sdk-rocattach.so";

/// The names of the C API's library in all generations.
const ATTACH_LIBRARIES: [&str; 3] = [
    ROCATTACH,
    "librocprofiler-attach.so",
    "librocprofv3-attach.so",
];

/// Our libraries.
#[derive(Debug, Clone)]
pub struct Install {
    /// The SDK, which the worker thread loads.
    pub sdk: PathBuf,
    /// The default tool.
    pub tool: PathBuf,
    files: Files,
}

/// The source from which our libraries are read.
#[derive(Debug, Clone)]
enum Files {
    /// They are opened by their paths.
    Paths,
    /// They were opened when they were checked, each with its path, for a program that has more
    /// rights than its user. These very files are sent, wherever their paths lead by then.
    Checked(Arc<Vec<(PathBuf, Arc<File>)>>),
    /// The program itself contains them (`midair` as one file). Their paths are names below the
    /// program's path, where no file can be.
    Carried {
        program: PathBuf,
        files: Arc<Carried>,
    },
}

impl Install {
    /// Makes the installation with these libraries, for a caller who knows where they are. They are
    /// opened by their paths, so this must not be used in a program that has more rights than its
    /// user.
    pub fn at(sdk: impl Into<PathBuf>, tool: impl Into<PathBuf>) -> Install {
        Install {
            sdk: sdk.into(),
            tool: tool.into(),
            files: Files::Paths,
        }
    }

    /// Finds the installation that this program belongs to, `midair` or a link to it.
    ///
    /// # Errors
    /// [`Kind::Installation`] if its libraries are not there, and in a program that has more rights
    /// than its user.
    pub fn of_program(program: &Path) -> Result<Install, Failure> {
        if rights::is_privileged() {
            let what = "a program with more rights than its user takes no other libraries";
            return Err(Failure::new(Kind::Installation, what));
        }
        let real = program.canonicalize();
        let real = real.map_err(|error| {
            let what = format!("cannot use {}: {error}", program.display());
            Failure::new(Kind::Installation, what)
        })?;
        let lib = real.ancestors().nth(2).map(|prefix| prefix.join("lib"));
        lib.and_then(|lib| Install::below(&lib)).ok_or_else(|| {
            let what = format!("{SDK} and {TOOL} are not in ../lib of {}", real.display());
            Failure::new(Kind::Installation, what).hint(
                "use the midair of a complete installation (cargo xtask install --prefix DIR)",
            )
        })
    }

    /// Finds the installation that the running code belongs to.
    ///
    /// # Errors
    /// [`Kind::Installation`] when there is none.
    pub fn find() -> Result<Install, Failure> {
        let program = std::env::current_exe().ok();
        let beside_program = program
            .as_deref()
            .and_then(|exe| Some(exe.parent()?.parent()?.join("lib")));
        let beside_library =
            mapped_library(ROCATTACH).and_then(|library| Some(library.parent()?.to_owned()));
        // Where the C API's library is loaded, the running program is another project's.
        if beside_library.is_none()
            && let Some(carried) = Carried::find()?
        {
            return Ok(Install::carried(carried, program.unwrap_or_default()));
        }
        let tried: Vec<PathBuf> = beside_library.into_iter().chain(beside_program).collect();
        let found = tried.iter().find_map(|directory| Install::below(directory)).ok_or_else(|| {
            let places: Vec<String> = tried.iter().map(|place| place.display().to_string()).collect();
            Failure::new(Kind::Installation, format!("{SDK} and {TOOL} are not in {}", places.join(" or ")))
                .hint("run the program from a complete installation (cargo xtask stage, or cargo xtask install --prefix DIR), or use midair as one file (cargo xtask dist)")
        })?;
        if rights::is_privileged() {
            // A user who can hard-link this program into another directory could otherwise choose
            // our libraries.
            return found.checked_by(rights::trusted);
        }
        Ok(found)
    }

    /// Returns the SDK and the default tool below a library directory, with these ends of their
    /// names (`librocprofiler-sdk.so.ENDING`), to start a program with.
    ///
    /// # Errors
    /// [`Kind::Usage`] for a library that is not there, and in a program that has more rights than
    /// its user.
    pub fn chosen(library_directory: &Path, ending: &str) -> Result<Install, Failure> {
        if rights::is_privileged() {
            return Err(Failure::new(
                Kind::Usage,
                "a program with more rights than its user takes no other libraries",
            ));
        }
        let named = |name: &str| {
            let stem = name.strip_suffix('1').unwrap_or(name);
            library_directory.join(format!("{stem}{ending}"))
        };
        let install = Install::at(named(SDK), named(TOOL));
        for path in [&install.sdk, &install.tool] {
            if !path.is_file() {
                return Err(Failure::new(
                    Kind::Usage,
                    format!("{} does not exist", path.display()),
                )
                .hint("see --rocm-root, --sdk-version and --sdk-soversion"));
            }
        }
        Ok(install)
    }

    fn carried(files: Carried, program: PathBuf) -> Install {
        let lib = program.join("lib");
        Install {
            sdk: lib.join(SDK),
            tool: lib.join(TOOL),
            files: Files::Carried {
                program,
                files: Arc::new(files),
            },
        }
    }

    /// Returns the same libraries with paths that another program's loader can open.
    ///
    /// # Errors
    /// [`Kind::Installation`] where they have to be unpacked and cannot be.
    pub fn on_disk(self) -> Result<Install, Failure> {
        let Files::Carried { files, .. } = &self.files else {
            return Ok(self);
        };
        let lib = files.unpack()?.join("lib");
        Ok(Install::at(lib.join(SDK), lib.join(TOOL)))
    }

    /// Returns the directory on a disk with what `midair demo` starts: the stand-in runtimes and a
    /// program.
    ///
    /// # Errors
    /// [`Kind::Installation`] where it has to be unpacked and cannot be, or is not installed.
    pub fn demonstration(self) -> Result<PathBuf, Failure> {
        let directory = self.on_disk()?.sdk.with_file_name(DEMO);
        if directory.is_dir() {
            return Ok(directory);
        }
        let what = format!("{} is not there", directory.display());
        Err(Failure::new(Kind::Installation, what)
            .hint("install midair again, or use midair as one file (cargo xtask dist)"))
    }

    /// Returns the program with that name next to the default tool. The path is valid as long as
    /// `self` lives.
    ///
    /// # Errors
    /// [`Kind::Installation`] for one that the program itself should carry and that is missing or
    /// damaged.
    pub fn helper(&self, name: &str) -> Result<PathBuf, Failure> {
        let path = self.tool.with_file_name(name);
        let Files::Carried { program, files } = &self.files else {
            return Ok(path);
        };
        below(&path, program)
            .and_then(|carried| files.runnable(carried))
            .map_err(|error| {
                Failure::new(Kind::Installation, format!("cannot use {name}: {error}"))
            })
    }

    /// Returns where the libraries are, in words for a person.
    pub(crate) fn place(&self) -> String {
        match &self.files {
            Files::Carried { program, .. } => format!("{} itself", program.display()),
            _ => self.sdk.parent().unwrap_or(&self.sdk).display().to_string(),
        }
    }

    /// Returns the library that records CUDA, which the worker thread of a CUDA process loads. It
    /// may be missing.
    pub fn cuda(&self) -> PathBuf {
        self.sdk.with_file_name(CUDA)
    }

    /// Returns the tools of a session whose caller named none.
    pub(crate) fn default_tools(&self) -> Tools {
        Tools {
            files: vec![self.tool.clone()],
            ..Tools::default()
        }
    }

    /// Opens all libraries, and the helper that runs after a session, with `open`, which checks them, and keeps them open.
    fn checked_by(self, open: impl Fn(&Path) -> io::Result<File>) -> Result<Install, Failure> {
        let disassembler = self.tool.with_file_name(midair_disassemble::HELPER);
        let others = [self.cuda(), disassembler].into_iter();
        let paths = [self.sdk.clone(), self.tool.clone()]
            .into_iter()
            .chain(others.filter(|path| path.exists()));
        let opened = paths.map(|path| {
            let file = open(&path).map_err(|why| {
                Failure::new(
                    Kind::Installation,
                    format!("cannot trust midair's libraries, while midair has privileges that you lack: {why}"),
                )
                .hint("install midair where only root can write, or remove its file capabilities or set-uid bit")
            })?;
            Ok((path, Arc::new(file)))
        });
        let files = Files::Checked(Arc::new(opened.collect::<Result<_, _>>()?));
        Ok(Install { files, ..self })
    }

    /// Returns one of our own libraries, open for reading. The descriptor is shared, so read it at
    /// explicit positions ([`std::os::unix::fs::FileExt`]).
    ///
    /// # Errors
    /// The kernel's; not found for a file that was not there when the others were checked.
    pub(crate) fn open(&self, path: &Path) -> io::Result<Arc<File>> {
        match &self.files {
            Files::Paths => File::open(path).map(Arc::new),
            Files::Checked(files) => {
                let found = files.iter().find(|(known, _)| known == path);
                found
                    .map(|(_, file)| Arc::clone(file))
                    .ok_or_else(|| io::ErrorKind::NotFound.into())
            }
            Files::Carried { program, files } => files.open(below(path, program)?),
        }
    }

    fn has(&self, path: &Path) -> bool {
        match &self.files {
            Files::Carried { program, files } => {
                below(path, program).is_ok_and(|name| files.has(name))
            }
            _ => path.is_file(),
        }
    }

    fn below(directory: &Path) -> Option<Install> {
        let install = Install::at(directory.join(SDK), directory.join(TOOL));
        (install.sdk.is_file() && install.tool.is_file()).then_some(install)
    }

    /// Returns the tools that the settings name (`ROCPROF_ATTACH_TOOL_LIBRARY`, a list separated by
    /// colons), or the default tool. `root` is the root directory of the process, if we may look at
    /// it.
    ///
    /// * The name of the attach library itself stands for the default tool, as callers of the older interface
    ///   use it (`docs/sources.md#register`).
    /// * A bare name is one of our own libraries, or else one that the target's loader finds.
    /// * A path is a file of this side, whose bytes are sent, or else, if it is absolute, one that only the
    ///   target has.
    ///
    /// # Errors
    /// [`Kind::Usage`] when a path is a file on neither side.
    pub fn tools(&self, settings: &Settings, root: Option<&Place>) -> Result<Tools, Failure> {
        self.tools_with(settings, root, rights::is_privileged())
    }

    fn tools_with(
        &self,
        settings: &Settings,
        root: Option<&Place>,
        privileged: bool,
    ) -> Result<Tools, Failure> {
        let mut tools = Tools::default();
        for name in settings.list("ROCPROF_ATTACH_TOOL_LIBRARY", ':') {
            match self.tool_named(name, root, privileged)? {
                Ok(path) if !tools.files.contains(&path) => tools.files.push(path),
                Err(name) if !tools.names.contains(&name) => tools.names.push(name),
                _ => {}
            }
        }
        if tools.files.is_empty() && tools.names.is_empty() {
            tools.files.push(self.tool.clone());
        }
        Ok(tools)
    }

    /// Decides whether a name is a file to be sent, or a name for the target's loader.
    fn tool_named(
        &self,
        name: &str,
        root: Option<&Place>,
        privileged: bool,
    ) -> Result<Result<PathBuf, String>, Failure> {
        let path = Path::new(name);
        let file = path
            .file_name()
            .map(|file| file.to_string_lossy().into_owned())
            .unwrap_or_default();
        if file.is_empty()
            || ATTACH_LIBRARIES.iter().any(|it| file.starts_with(it))
            || file.starts_with("librocprofiler-sdk-tool.so")
        {
            return Ok(Ok(self.tool.clone()));
        }
        let bare = !name.contains('/');
        if bare {
            let folders = [self.sdk.parent(), self.tool.parent()];
            let ours = folders
                .into_iter()
                .flatten()
                .map(|folder| folder.join(name))
                .find(|path| self.has(path));
            if let Some(ours) = ours {
                return Ok(Ok(ours));
            }
        }
        if privileged && path.is_relative() {
            return Err(Failure::new(
                Kind::NotPermitted,
                format!(
                    "cannot use the relative path {} of a tool library: midair has privileges that you lack",
                    path.display()
                ),
            )
            .hint("use its absolute path"));
        }
        // This runs as the real user, since errors reveal which files exist.
        let is_file = |path: &Path| rights::as_real_user(|| path.is_file()).unwrap_or(false);
        if is_file(path) {
            return Ok(Ok(path.to_owned()));
        }
        let there = path.is_absolute() && root.is_some_and(|root| root.is_file(path));
        if bare || there {
            return Ok(Err(name.to_owned()));
        }
        Err(Failure::new(
            Kind::Usage,
            format!("the tool library {} is not a file", path.display()),
        )
        .hint("give its path as midair sees it: midair sends it to the target"))
    }
}

/// Returns the name of a file that the program carries.
fn below<'a>(path: &'a Path, program: &Path) -> io::Result<&'a str> {
    let name = path.strip_prefix(program).ok().and_then(Path::to_str);
    name.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Returns in words what is unsafe about the file of a program that has more rights than its user:
/// who else may run it, or replace it. None for other programs, and where nothing is wrong.
pub(crate) fn weakness() -> Option<String> {
    if !rights::is_privileged() {
        return None;
    }
    let path = std::env::current_exe().ok()?;
    if let Err(why) = rights::trusted(&path) {
        return Some(format!(
            "midair has privileges that you lack, and can be replaced: {why}"
        ));
    }
    let mode = std::fs::metadata(&path).ok()?.permissions().mode();
    (mode & 0o001 != 0).then(|| {
        format!(
            "midair has privileges that you lack, and every user may run it: sudo chgrp profilers {0}; sudo chmod 0750 {0}; then give it its capabilities again (setcap)",
            path.display()
        )
    })
}

/// The tools of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tools {
    /// Files of this side, whose bytes are sent.
    pub files: Vec<PathBuf>,
    /// Names for the target's loader. They come after the files.
    pub names: Vec<String>,
    /// Only files that root owns and no other user can change may be sent ([`rights::trusted`]).
    /// Each is opened once, and is checked and read through that descriptor.
    pub only_trusted: bool,
}

impl Tools {
    /// Compares the tools with the rights of the process that `tid` is a live thread of. Tools that
    /// the caller chose are used only where the process has no right that the caller lacks. Our own
    /// default tool and our SDK are not the caller's choice.
    ///
    /// # Errors
    /// [`Kind::NotPermitted`] for a name that only the process's own loader would resolve, since the file
    /// cannot be checked.
    pub fn for_process(&mut self, tid: Tid, install: &Install) -> Result<(), Failure> {
        let ours_alone = self.names.is_empty() && self.files == [install.tool.clone()];
        if ours_alone {
            return Ok(());
        }
        let exceeding = rights::exceeding(tid);
        let why = match exceeding {
            Ok(None) => return self.check_files_are_readable(install),
            Ok(Some(why)) => why,
            Err(why) => format!("cannot read its privileges: {why}"),
        };
        self.only_trusted = true;
        let Some(name) = self.names.first() else {
            return self.check_files_are_trusted(&why, install);
        };
        Err(Failure::new(
            Kind::NotPermitted,
            format!("cannot load the tool library {name} there: {why}"),
        )
        .hint(
            "use a file outside the process's root that only root can write, by its absolute path",
        ))
    }

    /// Reports a file that cannot be sent before anything is entered.
    fn check_files_are_readable(&self, install: &Install) -> Result<(), Failure> {
        for path in &self.files {
            self.open(path, install)
                .map_err(|error| unreadable(path, &error))?;
        }
        Ok(())
    }

    /// Reports early what [`Tools::open`] would refuse.
    fn check_files_are_trusted(&self, why: &str, install: &Install) -> Result<(), Failure> {
        for path in self.files.iter().filter(|path| **path != install.tool) {
            rights::trusted(path).map_err(|bad| {
                let what = format!(
                    "cannot load the tool library {}: {why}, and {bad}",
                    path.display()
                );
                Failure::new(Kind::NotPermitted, what)
                    .hint("use a file that root owns, in directories that only root can write; or run this as root")
            })?;
        }
        Ok(())
    }

    /// Opens one of the files for sending.
    ///
    /// # Errors
    /// The kernel's; permission denied where [`Tools::only_trusted`] is violated.
    pub(crate) fn open(&self, path: &Path, install: &Install) -> io::Result<Arc<File>> {
        if path == install.tool
            || matches!(install.files, Files::Carried { .. }) && install.has(path)
        {
            return install.open(path);
        }
        // Otherwise anybody who may run this program could have any file sent to a process of
        // theirs.
        rights::as_real_user(|| {
            if self.only_trusted {
                rights::trusted(path)
            } else {
                File::open(path)
            }
        })?
        .map(Arc::new)
    }
}

/// Returns the failure for a tool that cannot be sent.
pub(crate) fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(
        Kind::Installation,
        format!("cannot read the tool {}: {error}", path.display()),
    )
}

/// Returns the path of a mapped library of this process whose file name starts with `name`.
fn mapped_library(name: &str) -> Option<PathBuf> {
    let maps = std::fs::read("/proc/self/maps").ok()?;
    maps.split(|byte| *byte == b'\n').find_map(|line| {
        let at = line.iter().position(|byte| *byte == b'/')?;
        let path = std::str::from_utf8(line.get(at..)?).ok()?;
        let path = Path::new(path);
        path.file_name()?
            .to_str()?
            .starts_with(name)
            .then(|| path.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Platform;
    use std::os::unix::fs::{FileExt, symlink};

    /// A user links the program next to a link to its libraries, and later changes where that link
    /// leads.
    #[test]
    fn what_was_checked_is_what_is_sent() {
        let dir = tempfile::tempdir().unwrap();
        for place in ["good", "evil"] {
            for file in [SDK, TOOL, CUDA] {
                let path = dir.path().join(place).join(file);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, place).unwrap();
            }
        }
        let link = dir.path().join("lib");
        symlink("good", &link).unwrap();
        let by_path = Install::below(&link).unwrap();
        let install = by_path.clone().checked_by(|path| File::open(path)).unwrap();
        std::fs::remove_file(&link).unwrap();
        symlink("evil", &link).unwrap();
        let sent = |install: &Install| {
            let read = |file: &File| {
                let mut text = [0; 4];
                file.read_exact_at(&mut text, 0).unwrap();
                String::from_utf8(text.to_vec()).unwrap()
            };
            let libraries = [Platform::Amd, Platform::Cuda].map(|platform| {
                match platform.library(install).unwrap() {
                    midair_inject::Library::Opened { file, .. } => read(&file),
                    other => panic!("{other:?}"),
                }
            });
            let tools = install.default_tools();
            let tool = read(&tools.open(&tools.files[0], install).unwrap());
            libraries.into_iter().chain([tool]).collect::<Vec<_>>()
        };
        assert_eq!(sent(&install), ["good"; 3]);
        // Opening by path finds what is there now.
        assert_eq!(sent(&by_path), ["evil"; 3]);
        let unchecked = install.open(&dir.path().join("good").join(SDK));
        assert_eq!(unchecked.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn each_name_of_a_list_is_a_file_to_send_or_a_name_for_the_target() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            path
        };
        let install = Install::at(
            at("lib/librocprofiler-sdk.so.1"),
            at("lib/rocprofiler-sdk/librocprofiler-sdk-tool.so.1"),
        );
        let (mine, ours) = (at("mine.so"), at("lib/rocprofiler-sdk/libours.so"));
        at("root/there/theirs.so");
        let root = Place::own_root().unwrap();
        let root = root.at_root_of(dir.path().join("root")).unwrap();
        let tools = |list: &str| {
            let settings: Settings = [("ROCPROF_ATTACH_TOOL_LIBRARY", list)]
                .into_iter()
                .collect();
            install.tools(&settings, Some(&root))
        };
        let list = format!(
            "libfar.so:{}:/x/librocprofiler-sdk-rocattach.so.1:libours.so:/there/theirs.so:librocprofv3-attach.so:libfar.so",
            mine.display()
        );
        assert_eq!(
            tools(&list).unwrap(),
            Tools {
                files: vec![mine, install.tool.clone(), ours],
                names: vec!["libfar.so".to_owned(), "/there/theirs.so".to_owned()],
                only_trusted: false,
            }
        );
        let default = Tools {
            files: vec![install.tool.clone()],
            ..Tools::default()
        };
        for none in ["", ":", "librocprofiler-sdk-tool.so"] {
            assert_eq!(tools(none).unwrap(), default, "{none:?}");
        }
        assert_eq!(tools("/nowhere/x.so").unwrap_err().kind, Kind::Usage);
        assert_eq!(tools("folder/x.so").unwrap_err().kind, Kind::Usage);
        // With more rights than the caller's, nothing is resolved relative to the caller's working directory.
        let raised = |list: &str| {
            let settings: Settings = [("ROCPROF_ATTACH_TOOL_LIBRARY", list)]
                .into_iter()
                .collect();
            install.tools_with(&settings, Some(&root), true)
        };
        for relative in ["folder/x.so", "libfar.so", "./x.so"] {
            assert_eq!(raised(relative).unwrap_err().kind, Kind::NotPermitted);
        }
        assert_eq!(raised("libours.so").unwrap().files.len(), 1);
    }
}
