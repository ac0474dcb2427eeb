//! Which GPU runtimes a process has, and which of our libraries records it.

use crate::explain;
use crate::install::Install;
use midair_failure::{Failure, Kind};
use midair_inject::{Approach, Inspection, Library, Options};
use midair_procinfo::Pid;
use midair_procinfo::link_map;
use midair_procinfo::module::Modules;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Functions that identify a HIP or HSA runtime and CUDA's driver library, whatever their files are
/// called.
const BY_FUNCTION: [&str; 3] = ["hsa_init", "hipGetDeviceCount", "cuInit"];
/// The usual names of AMD's runtimes. They are compared first, since reading the symbols of every
/// library takes long.
const AMD_NAMES: [&[u8]; 2] = [b"libhsa-runtime64", b"libamdhip64"];
/// Name of CUDA's driver library. `libcudart.so` and `libcudadebugger.so` are other libraries.
pub(crate) const CUDA_NAME: &[u8] = b"libcuda.so";
/// The word that identifies the copy of our CUDA library in a process ([`Inspection::copies`]).
const CUDA_WORD: &str = "cuda";

/// The platform whose runtimes are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Platform {
    /// HIP and HSA, by the SDK and its tools.
    #[default]
    Amd,
    /// CUDA, through CUPTI.
    Cuda,
}

impl Platform {
    /// Returns the file of the library that is sent.
    pub(crate) fn file(self, install: &Install) -> PathBuf {
        match self {
            Platform::Amd => install.sdk.clone(),
            Platform::Cuda => install.cuda(),
        }
    }

    /// Returns the library in the engine's form.
    ///
    /// # Errors
    /// [`Kind::Installation`] when it is not there.
    pub(crate) fn library(self, install: &Install) -> Result<Library, Failure> {
        let path = self.file(install);
        let word = match self {
            Platform::Amd => "",
            Platform::Cuda => CUDA_WORD,
        };
        match install.open(&path) {
            Ok(file) => Ok(Library::Opened { file, word }),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(Failure::new(
                Kind::Installation,
                format!("{} is not there", path.display()),
            )
            .hint("use a complete installation (cargo xtask stage, or cargo xtask install --prefix DIR)")),
            Err(error) => Err(Failure::new(
                Kind::Installation,
                format!("cannot read {}: {error}", path.display()),
            )
            .hint(format!("sudo chmod a+r {}", path.display()))),
        }
    }
}

/// File names of the GPU runtimes that are mapped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Runtimes {
    /// HIP and HSA.
    pub(crate) amd: Vec<String>,
    /// CUDA's driver library.
    pub(crate) cuda: Vec<String>,
}

impl Runtimes {
    /// Finds the runtimes by file name or, where no file has such a name, by exported functions.
    pub(crate) fn of(modules: &Modules) -> Runtimes {
        let names = || modules.list.iter().map(|module| module.file_name());
        let shown = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let is_amds = |name: &&[u8]| AMD_NAMES.iter().any(|usual| name.starts_with(usual));
        let usual = Runtimes {
            amd: names().filter(is_amds).map(shown).collect(),
            cuda: names()
                .filter(|name| name.starts_with(CUDA_NAME))
                .map(shown)
                .collect(),
        };
        if !usual.is_empty() {
            return usual;
        }
        let mut found = Runtimes::default();
        for (index, name) in names().enumerate() {
            let exported = modules
                .load(index)
                .and_then(|loaded| loaded.elf.exported(BY_FUNCTION));
            match exported {
                Ok([None, None, Some(_)]) => found.cuda.push(shown(name)),
                Ok([None, None, None]) | Err(_) => {}
                Ok(_) => found.amd.push(shown(name)),
            }
        }
        found
    }

    /// Whether there is none at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.amd.is_empty() && self.cuda.is_empty()
    }

    /// Chooses the platform to record, with a warning about the other one. None where there is no
    /// runtime.
    ///
    /// AMD's is preferred where both are loaded. But if one of our libraries is in the process
    /// already, that library's platform is used: its parked worker thread would be woken, whatever
    /// library was sent.
    pub(crate) fn choose(
        &self,
        copies: &[String],
        pid: Pid,
    ) -> Result<Option<(Platform, Option<String>)>, Failure> {
        let has_sdk = copies.iter().any(String::is_empty);
        let has_cuda = copies.iter().any(|word| word == CUDA_WORD);
        let both = |recorded: &str, other: &str, why: &str| {
            Some(format!(
                "process {pid} has {recorded} and also {other}, which is not recorded{why}"
            ))
        };
        Ok(match (self.amd.is_empty(), self.cuda.is_empty()) {
            (true, true) => None,
            (false, true) => Some((Platform::Amd, None)),
            (true, false) if has_sdk && !has_cuda => {
                return Err(Failure::new(
                    Kind::Busy,
                    format!(
                        "cannot record process {pid} as a CUDA process: an earlier attach recorded HIP or HSA there"
                    ),
                )
                .hint("restart it"));
            }
            (true, false) => Some((Platform::Cuda, None)),
            (false, false) if has_cuda && !has_sdk => Some((
                Platform::Cuda,
                both(
                    "CUDA",
                    "HIP or HSA",
                    ", since an earlier attach recorded it as a CUDA process",
                ),
            )),
            (false, false) => Some((Platform::Amd, both("HIP and HSA", "CUDA", ""))),
        })
    }
}

/// The platform that would be recorded, and a warning about the other one.
pub(crate) type Detected = (Platform, Option<String>);

/// Finds out whether there is a GPU runtime, and which. The source is the process's mappings, or
/// its listener's reply where those may not be read.
///
/// # Errors
/// Where that cannot be determined, or the runtimes found cannot be recorded.
pub(crate) fn detect(approach: &Approach, options: &Options) -> Result<Option<Detected>, Failure> {
    match (&approach.inspection, &approach.endpoint) {
        (Ok(look), _) => detect_mapped(look),
        // The listener of our register library knows AMD's runtimes only.
        (Err(_), Some(endpoint)) => endpoint
            .ask(options)
            .map(|here| here.gpu.then_some((Platform::Amd, None)))
            .map_err(|error| explain::not_entered(approach, &error)),
        (Err(refusal), None) => Err(explain::refused(refusal)),
    }
}

/// Does the same from the mappings alone.
///
/// # Errors
/// As [`detect`].
pub(crate) fn detect_mapped(look: &Inspection) -> Result<Option<Detected>, Failure> {
    Runtimes::of(&look.modules).choose(&look.copies(), look.pid)
}

/// Refuses a process with two copies of one runtime. midair cannot tell which of them it works
/// with, and a trace of the other would look as if nothing had happened.
///
/// # Errors
/// [`Kind::Ambiguous`].
pub(crate) fn refuse_two_copies(pid: Pid, modules: &Modules) -> Result<(), Failure> {
    for usual in AMD_NAMES {
        let mut copies = modules
            .list
            .iter()
            .filter(|module| module.file_name().starts_with(usual))
            .map(|module| midair_procinfo::show(&module.path));
        if let (Some(first), Some(second)) = (copies.next(), copies.next()) {
            return Err(Failure::new(
                Kind::Ambiguous,
                format!(
                    "process {pid} has two copies of {}: {first} and {second}",
                    String::from_utf8_lossy(usual)
                ),
            )
            .hint("let the program load one (see LD_LIBRARY_PATH, RUNPATH, and what its Python packages bring)"));
        }
    }
    Ok(())
}

/// How long a library may take from its mapping to its entry in the loader's list.
const TO_THE_LIST: Duration = Duration::from_millis(300);

/// Refuses a process that has its runtime only in another namespace of the loader (`dlmopen`). Our
/// library is loaded into the program's own, where it finds no runtime to record.
///
/// # Errors
/// [`Kind::Ambiguous`].
pub(crate) fn refuse_other_namespace(
    pid: Pid,
    modules: &Modules,
    platform: Platform,
) -> Result<(), Failure> {
    let usual: &[&[u8]] = match platform {
        Platform::Amd => &AMD_NAMES,
        Platform::Cuda => &[CUDA_NAME],
    };
    let is_runtime = |name: &[u8]| usual.iter().any(|usual| name.starts_with(usual));
    let list = modules.list.iter().enumerate();
    let runtimes: Vec<_> = list.filter(|(_, it)| is_runtime(it.file_name())).collect();
    // One that cannot be read is not known to be elsewhere.
    let biases: Option<Vec<u64>> = runtimes
        .iter()
        .map(|(index, _)| modules.load(*index).ok().map(|loaded| loaded.bias))
        .collect();
    let (Some((_, first)), Some(biases)) = (runtimes.first(), biases) else {
        return Ok(());
    };
    let until = Instant::now() + TO_THE_LIST;
    loop {
        // A list that is empty or damaged shows nothing.
        let own = link_map::biases(modules.tid(), modules.memory()).unwrap_or_default();
        if own.is_empty() || biases.iter().any(|bias| own.contains(bias)) {
            return Ok(());
        }
        if Instant::now() > until {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(Failure::new(
        Kind::Ambiguous,
        format!(
            "cannot record process {pid}: it has loaded {} in another linker namespace (dlmopen)",
            midair_procinfo::show(&first.path)
        ),
    )
    .hint("load it with dlopen, or link against it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(amd: bool, cuda: bool, copies: &[&str]) -> Result<Option<Detected>, Kind> {
        let names = |there: bool, name: &str| there.then(|| name.to_owned()).into_iter().collect();
        let runtimes = Runtimes {
            amd: names(amd, "libamdhip64.so.7"),
            cuda: names(cuda, "libcuda.so.1"),
        };
        let copies: Vec<String> = copies.iter().map(|word| (*word).to_owned()).collect();
        runtimes
            .choose(&copies, Pid::own())
            .map_err(|failure| failure.kind)
    }

    #[test]
    fn amds_comes_first_unless_our_cuda_library_is_there() {
        let platform = |chosen: Result<Option<Detected>, Kind>| {
            chosen.map(|it| it.map(|(platform, note)| (platform, note.is_some())))
        };
        assert_eq!(platform(choose(false, false, &["cuda"])), Ok(None));
        assert_eq!(
            platform(choose(true, false, &[])),
            Ok(Some((Platform::Amd, false)))
        );
        assert_eq!(
            platform(choose(false, true, &[])),
            Ok(Some((Platform::Cuda, false)))
        );
        assert_eq!(
            platform(choose(true, true, &[])),
            Ok(Some((Platform::Amd, true)))
        );
        assert_eq!(
            platform(choose(true, true, &[""])),
            Ok(Some((Platform::Amd, true)))
        );
        assert_eq!(
            platform(choose(true, true, &["cuda"])),
            Ok(Some((Platform::Cuda, true)))
        );
        assert_eq!(
            platform(choose(true, true, &["", "cuda"])),
            Ok(Some((Platform::Amd, true)))
        );
    }

    #[test]
    fn a_cuda_process_is_never_handed_to_the_sdk() {
        assert_eq!(choose(false, true, &[""]).unwrap_err(), Kind::Busy);
        assert_eq!(
            choose(false, true, &["cuda"]).map(|it| it.map(|it| it.0)),
            Ok(Some(Platform::Cuda))
        );
    }
}
