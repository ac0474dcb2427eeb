//! The process that makes the packets of counters by AMD's library: on this side, or, if this side has
//! no library that loads, in the root of the target.

use crate::install::Install;
use crate::rights;
use crate::session::memory_copy;
use crate::target::Target;
use midair_aqlprofile::{Error, Helper, Inside, Maker, SONAME, traces};
use midair_counters::Template;
use midair_counters::wire::Question;
use midair_failure::Failure;
use midair_inject::Approach;
use midair_procinfo::elf::ElfFile;
use midair_procinfo::files::{Place, kernel_file, kernel_link, same_place};
use midair_procinfo::{Tid, libc_kind, show, task};
use midair_record::trace_plan::Trace;
use midair_results::Identity;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The helper's file, next to the default tool.
pub(crate) const HELPER: &str = "midair-aqlprofile";
/// Where ROCm is installed.
const OPT: &str = "/opt";
/// The start of the name of AMD's runtime, which may have the packet library next to it.
const RUNTIME: &[u8] = b"libhsa-runtime64";

/// The root of a target that has another root than this process.
#[derive(Debug)]
pub(crate) struct TargetRoot {
    inside: Inside,
    /// Why the helper cannot run there.
    unfit: Option<String>,
}

impl TargetRoot {
    /// Looks at the root of the process. None where that is this process's own root.
    pub(crate) fn of(
        approach: &Approach,
        held: &Target,
        identity: &Identity,
        install: &Install,
    ) -> Option<Result<TargetRoot, String>> {
        if shares_our_root(approach.tid).unwrap_or(false) {
            return None;
        }
        if rights::is_privileged() {
            let why = "a program with more rights than its user enters no other root";
            return Some(Err(why.to_owned()));
        }
        let there =
            TargetRoot::look(approach, identity, install).map_err(|error| error.to_string());
        // All of this has to be about the same process.
        Some(match held.ended() {
            None => there,
            Some(_) => Err("the process has ended".to_owned()),
        })
    }

    fn look(approach: &Approach, identity: &Identity, install: &Install) -> io::Result<TargetRoot> {
        let tid = approach.tid;
        let root = Place::root_of(tid)?;
        let status = task::status(tid)?;
        let file = install.open(&install.tool.with_file_name(HELPER))?;
        let program = memory_copy(&file)?.file.into();
        let look = approach.inspection.as_ref().ok();
        let version = look.map(|look| look.code.version);
        let inside = Inside {
            root: root.descriptor()?,
            mounts: kernel_file(format!("{tid}/ns/mnt"))?.into(),
            program,
            user: status.uid[0],
            group: status.gid[0],
            groups: status.groups,
            search: variable(identity, "LD_LIBRARY_PATH").unwrap_or_default(),
            libraries: libraries(&root, approach, identity),
        };
        let program = ElfFile::open(file.try_clone()?)?;
        let unfit = unfit(&program, version, |path| root.is_file(path))?;
        Ok(TargetRoot { inside, unfit })
    }

    fn start(&self, program: &Path) -> Result<Helper, Error> {
        match &self.unfit {
            Some(why) => Err(Error::Loader(why.clone())),
            None => Helper::start_inside(program, &self.inside),
        }
    }
}

/// Returns the file that AMD's library is in the root of a process, if that is another root than this
/// side's. One that only the loader finds is left out.
pub(crate) fn library_there(tid: Tid, approach: &Approach, identity: &Identity) -> Option<PathBuf> {
    if shares_our_root(tid).unwrap_or(true) {
        return None;
    }
    let root = Place::root_of(tid).ok()?;
    let all = libraries(&root, approach, identity).into_iter();
    let mut paths = all.map(PathBuf::from).filter(|path| path.is_absolute());
    paths.find(|path| root.is_file(path))
}

/// Returns the files that AMD's library may be in the root of a process. The first is next to the
/// runtime that the process has loaded.
fn libraries(root: &Place, approach: &Approach, identity: &Identity) -> Vec<OsString> {
    let modules = approach.inspection.as_ref().map(|look| &look.modules);
    let mut mapped = modules.iter().flat_map(|modules| &modules.list);
    let runtime = mapped.find(|module| module.file_name().starts_with(RUNTIME));
    let next_to_it = runtime.map(|module| {
        let seen = PathBuf::from(show(&module.path)).with_file_name(SONAME);
        // The kernel prints paths as seen from here, and so the root of a process that has only changed
        // its root (chroot).
        let root = kernel_link(format!("{}/root", approach.tid)).unwrap_or_default();
        match seen.strip_prefix(root) {
            Ok(below) => Path::new("/").join(below),
            Err(_) => seen,
        }
    });
    let mut all: Vec<OsString> = next_to_it
        .into_iter()
        .map(PathBuf::into_os_string)
        .collect();
    let names = root.list(OPT).unwrap_or_default();
    all.extend(midair_aqlprofile::libraries_among(
        |name| variable(identity, name),
        names,
    ));
    all
}

/// Returns a variable of the process.
fn variable(identity: &Identity, name: &str) -> Option<OsString> {
    let mut pairs = identity.keys.environment.iter();
    let value = pairs.find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?;
    (!value.is_empty()).then(|| value.into())
}

/// Whether the process of this thread has the root and the mounts of this process.
fn shares_our_root(tid: Tid) -> io::Result<bool> {
    let mounts = |of: &str| kernel_link(format!("{of}/ns/mnt"));
    Ok(mounts("self")? == mounts(&tid.to_string())?
        && same_place("self/root", &format!("{tid}/root"))?)
}

/// Returns why a program cannot run in a root with this glibc, in which `has` finds files. The version
/// is not known where only the listener of the process may be asked.
fn unfit(
    program: &ElfFile,
    version: Option<(u32, u32)>,
    has: impl Fn(&str) -> bool,
) -> io::Result<Option<String>> {
    let loader = program.interpreter.as_deref().map(show).unwrap_or_default();
    if !loader.is_empty() && !has(&loader) {
        return Ok(Some(format!("it has no {loader}, the loader of glibc")));
    }
    let needed = libc_kind::needed(program)?;
    let too_old = version.filter(|there| *there < needed);
    Ok(too_old.map(|(major, minor)| {
        format!(
            "its C library is too old: glibc {major}.{minor}; {}.{} or newer required",
            needed.0, needed.1
        )
    }))
}

/// Makes packets by the helper on this side, and if that finds no library, by one in the target's root.
pub(crate) struct Packets {
    program: PathBuf,
    here: Helper,
    there: Option<Result<Arc<TargetRoot>, String>>,
    inside: Option<Helper>,
}

impl Packets {
    /// Starts the helper on this side.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn start(
        install: &Install,
        there: Option<Result<Arc<TargetRoot>, String>>,
    ) -> Result<Packets, Failure> {
        let program = install.helper(HELPER)?;
        let libraries = midair_aqlprofile::libraries(variable_here);
        let here = Helper::start(&program, &libraries)
            .map_err(|error| midair_aqlprofile::failure(&error))?;
        Ok(Packets {
            program,
            here,
            there,
            inside: None,
        })
    }
}

/// Returns where ROCm may be on this side.
pub(crate) fn rocm_roots() -> Vec<PathBuf> {
    midair_aqlprofile::roots(variable_here)
}

/// Reads a variable of this process, where it may choose libraries.
fn variable_here(name: &str) -> Option<OsString> {
    let is_obeyed = !rights::is_privileged();
    is_obeyed.then(|| std::env::var_os(name)).flatten()
}

impl Packets {
    /// Has the packets of thread traces made.
    ///
    /// # Errors
    /// See [`Error`].
    pub(crate) fn trace(&mut self, question: &traces::Question) -> Result<Trace, Error> {
        self.ask(|helper| helper.trace(question))
    }

    /// Asks the helper that has a library.
    fn ask<T>(&mut self, question: impl Fn(&mut Helper) -> Result<T, Error>) -> Result<T, Error> {
        if let Some(inside) = &mut self.inside {
            return question(inside);
        }
        let why = match question(&mut self.here) {
            Err(Error::Missing(why)) => why,
            answer => return answer,
        };
        let there = match &self.there {
            None => return Err(Error::Missing(why)),
            Some(Err(reason)) => return Err(Error::Outside(reason.clone())),
            Some(Ok(there)) => there,
        };
        let inside = self.inside.insert(there.start(&self.program)?);
        question(inside).map_err(|error| match error {
            Error::Missing(reason) => {
                Error::Missing(format!("in the root of the process: {reason}; here: {why}"))
            }
            error => error,
        })
    }
}

impl Maker for Packets {
    fn template(&mut self, question: &Question) -> Result<Template, Error> {
        self.ask(|helper| helper.template(question))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_root_without_the_c_library_that_the_helper_needs_is_refused() {
        let program = ElfFile::open(File::open("/proc/self/exe").unwrap()).unwrap();
        let needed = libc_kind::needed(&program).unwrap();
        assert!(needed > (2, 0), "{needed:?}");
        let why = |version, has: bool| unfit(&program, version, |_| has).unwrap();
        assert_eq!(why(Some(needed), true), None);
        assert_eq!(why(None, true), None);
        let old = why(Some((2, 1)), true).unwrap();
        assert!(old.contains("glibc 2.1;"), "{old}");
        let musl = why(None, false).unwrap();
        assert!(musl.contains("ld-linux"), "{musl}");
    }

    #[test]
    fn this_process_has_its_own_root() {
        assert!(shares_our_root(midair_procinfo::Pid::own().leader()).unwrap());
    }
}
