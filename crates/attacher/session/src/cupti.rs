//! Which CUPTI a CUDA process would find, and who else profiles it, determined from outside. The search is
//! the one that our library makes in the process (`midair-cupti-file`), over the process's own files.

use crate::cuda::{NO_CUPTI, OTHER_PROFILER};
use crate::runtime::CUDA_NAME;
use midair_cupti_file::profilers;
use midair_cupti_file::{Files, Origin, Process, search};
use midair_failure::{Failure, Kind};
use midair_inject::Inspection;
use midair_procinfo::files::{MOST_WORDS, Place, kernel_text_up_to};
use midair_procinfo::module::Modules;
use midair_procinfo::{Pid, Tid, show};
use midair_settings::{CUPTI, Settings};
use std::io;

/// Where the loader searches by default, besides its cache.
const LOADERS_FOLDERS: [&str; 4] = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"];
/// The cache that `ldconfig` writes.
const LOADERS_CACHE: &str = "/etc/ld.so.cache";
/// The most bytes of the cache that are read, since the file belongs to the process.
const MOST_CACHE: usize = 16 << 20;

/// The most mapped files that are inspected. The process may have mapped any number, and several
/// locations are searched next to each of CUDA's files.
const MOST_MAPPED: usize = 4096;

/// Returns the version of the driver from the name of its library, such as `580.95.05`.
pub(crate) fn driver(modules: &Modules) -> Option<String> {
    modules.list.iter().find_map(|module| {
        let rest = module.file_name().strip_prefix(CUDA_NAME)?;
        let version = show(rest.strip_prefix(b".")?);
        version.contains('.').then_some(version)
    })
}

/// Returns the major version of the newest CUDA that a driver supports, or 0 where the driver's
/// version does not tell. Source: the CUDA toolkit's release notes (525 came with CUDA 12.0, 580
/// with 13.0).
fn major(driver: Option<&str>) -> u32 {
    let branch = driver.and_then(|version| version.split('.').next()?.parse::<u32>().ok());
    match branch {
        None => 0,
        // WSL's library has a version number of its own: 1.1.
        Some(..100) => 0,
        Some(100..525) => 11,
        Some(525..580) => 12,
        Some(_) => 13,
    }
}

/// Describes the process that `tid` is a live thread of, as far as it may be read.
fn process(tid: Tid, modules: &Modules) -> Process {
    let environment = kernel_text_up_to(format!("{tid}/environ"), MOST_WORDS).unwrap_or_default();
    let pair = |one: &[u8]| {
        let (name, value) = std::str::from_utf8(one).ok()?.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    };
    Process {
        mapped: modules
            .list
            .iter()
            .filter(|module| !module.deleted)
            .take(MOST_MAPPED)
            .map(|module| String::from_utf8_lossy(&module.path).into_owned())
            .collect(),
        environment: environment
            .split(|byte| *byte == 0)
            .filter_map(pair)
            .collect(),
    }
}

/// Returns the refusal for another profiler that the process was started with, if there is one.
pub(crate) fn other_profiler(pid: Pid, tid: Tid, modules: &Modules) -> Option<Failure> {
    profilers::other_profiler(&process(tid, modules)).map(|why| {
        let why: String = why.chars().filter(|c| !c.is_control()).collect();
        Failure::new(
            Kind::OtherProfiler,
            format!("cannot record process {pid}: {why}"),
        )
        .hint(OTHER_PROFILER)
    })
}

/// Describes the CUPTI that would be tried first. Whether it fits is known only when it is loaded.
///
/// # Errors
/// [`Kind::NoCupti`]; or the kernel's error, where the process's files cannot be read.
pub(crate) fn first_candidate(
    pid: Pid,
    tid: Tid,
    modules: &Modules,
    settings: &Settings,
) -> io::Result<Result<String, Failure>> {
    let root = Root::of(tid)?;
    let process = process(tid, modules);
    let driver = driver(modules);
    let major = major(driver.as_deref());
    let search = search(settings.text(CUPTI), &process, major, &root);
    let mut loaders = Vec::new();
    for candidate in &search.candidates {
        let path = show(candidate.path.as_bytes());
        let how = match candidate.origin {
            Origin::Named if !root.is_file(&candidate.path) => {
                return Ok(Err(no_cupti(
                    pid,
                    &format!("it cannot see the file {path} of --cupti"),
                )));
            }
            Origin::Named => "as --cupti says",
            Origin::Mapped => "which it has loaded",
            Origin::Beside => "next to its CUDA libraries",
            Origin::Environment => "by its environment",
            Origin::Toolkit => "in the toolkit",
            Origin::Loader => {
                loaders.push(candidate.path.as_str());
                continue;
            }
        };
        return Ok(Ok(format!("{path}, {how}")));
    }
    let cache = root.cache();
    for name in &loaders {
        let known = cache
            .windows(name.len() + 1)
            .any(|bytes| bytes.starts_with(name.as_bytes()) && bytes.ends_with(b"\0"));
        let there = LOADERS_FOLDERS.iter().any(|folder| {
            let of_machine = format!("{folder}/{}-linux-gnu/{name}", std::env::consts::ARCH);
            root.is_file(&format!("{folder}/{name}")) || root.is_file(&of_machine)
        });
        if known || there {
            return Ok(Ok(format!("{name}, which its loader finds")));
        }
    }
    Ok(Err(match loaders.is_empty() {
        true => no_cupti(
            pid,
            &format!(
                "CUPTI of CUDA 12 or later required, and its driver ({}) is older",
                driver.unwrap_or_default()
            ),
        ),
        false => no_cupti(
            pid,
            &format!(
                "no CUPTI found ({}): none is loaded, next to its CUDA libraries, in a toolkit, or on its loader's path",
                loaders.join(" or ")
            ),
        ),
    }))
}

fn no_cupti(pid: Pid, why: &str) -> Failure {
    Failure::new(Kind::NoCupti, format!("cannot record process {pid}: {why}")).hint(NO_CUPTI)
}

/// Refuses what can be seen to fail, before anything is touched. Our library in the process reports
/// what cannot be seen from outside.
///
/// # Errors
/// [`Kind::OtherProfiler`], [`Kind::NoCupti`].
pub(crate) fn require_cupti(look: &Inspection, settings: &Settings) -> Result<(), Failure> {
    if let Some(other) = other_profiler(look.pid, look.tid, &look.modules) {
        return Err(other);
    }
    let found = first_candidate(look.pid, look.tid, &look.modules, settings);
    found.map_or(Ok(()), |found| found.map(drop))
}

/// A process's own file system. Links are followed inside it.
struct Root(Place);

impl Root {
    fn of(tid: Tid) -> io::Result<Root> {
        Place::root_of(tid).map(Root)
    }

    /// Returns the loader's cache, or nothing where there is none.
    fn cache(&self) -> Vec<u8> {
        self.0.read(LOADERS_CACHE, MOST_CACHE).unwrap_or_default()
    }
}

impl Files for Root {
    fn is_file(&self, path: &str) -> bool {
        self.0.is_file(path)
    }

    fn list(&self, directory: &str) -> Vec<String> {
        let names = self.0.list(directory).unwrap_or_default().into_iter();
        names.filter_map(|name| name.into_string().ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_tell_their_cuda() {
        for (version, cuda) in [
            (None, 0),
            (Some("1.1"), 0),
            (Some("470.256.02"), 11),
            (Some("525.60.13"), 12),
            (Some("575.57.08"), 12),
            (Some("580.159.04"), 13),
            (Some("x"), 0),
        ] {
            assert_eq!(major(version), cuda, "{version:?}");
        }
    }

    #[test]
    fn links_stay_inside_of_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("usr/local/cuda-13.0/lib64")).unwrap();
        std::fs::write(at("usr/local/cuda-13.0/lib64/libcupti.so.13"), "").unwrap();
        std::os::unix::fs::symlink("/usr/local/cuda-13.0", at("usr/local/cuda")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", at("outside")).unwrap();
        let root = Root(Place::own_root().unwrap().at_root_of(dir.path()).unwrap());
        assert!(root.is_file("/usr/local/cuda/lib64/libcupti.so.13"));
        assert!(!root.is_file("/usr/local/cuda/lib64"));
        // Such a file exists outside the root and not inside it.
        assert!(std::path::Path::new("/etc/passwd").is_file());
        assert!(!root.is_file("/outside") && !root.is_file("/../../../../etc/passwd"));
        let mut names = root.list("/usr/local");
        names.sort();
        assert_eq!(names, ["cuda", "cuda-13.0"]);
        assert!(root.list("/nowhere").is_empty() && root.cache().is_empty());
    }

    #[test]
    fn what_this_process_would_find() {
        let us = Pid::own();
        let modules = Modules::of(us).unwrap();
        let look = |named: &str| {
            let settings: Settings = [(CUPTI, named)].into_iter().collect();
            first_candidate(us, us.leader(), &modules, &settings).unwrap()
        };
        let exe = std::env::current_exe().unwrap();
        let found = look(exe.to_str().unwrap()).unwrap();
        assert!(found.ends_with(", as --cupti says"), "{found}");
        let missing = look("/no/such/libcupti.so.12").unwrap_err();
        assert_eq!(missing.kind, Kind::NoCupti);
        assert!(!missing.hint.is_empty());
        assert!(other_profiler(us, us.leader(), &modules).is_none());
    }
}
