//! Lays the stand-in for NVIDIA's libraries out as a program finds the real ones: `libcuda.so.1`
//! (the driver's), and `libcudart.so.12` and `.13`, each with its `libcupti.so` alongside it. The
//! libraries are C, which is compiled here. Every layout of CUPTI's records is a C struct, and a
//! flag sets a SONAME or leaves a function out. `c/model.h` describes what they model, and
//! `c/cupti.h` how they can be made to fail.

#![forbid(unsafe_code)]

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The driver library's file name, which contains the version, as the real one's does.
pub const DRIVER_FILE: &str = "libcuda.so.580.65.06";
/// The major versions of the toolkit that the stand-in has, and the version that their CUPTI
/// returns (source: the headers of 12.9 and 13.0).
pub const MAJORS: [(u32, u32); 2] = [(12, 28), (13, 130_001)];

/// A directory with everything that a program needs to run.
#[derive(Debug, Clone)]
pub struct StandIn {
    dir: PathBuf,
}

/// The libraries that a program is linked with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Toolkit {
    /// The libraries of this major version, with CUPTI in the same directory.
    Major(u32),
    /// The libraries of version 13 without a CUPTI.
    Bare,
}

impl Toolkit {
    fn major(self) -> u32 {
        match self {
            Toolkit::Major(major) => major,
            Toolkit::Bare => 13,
        }
    }

    fn folder(self) -> String {
        match self {
            Toolkit::Major(major) => major.to_string(),
            Toolkit::Bare => "bare".to_owned(),
        }
    }
}

impl StandIn {
    /// Compiles into `dir` what is not up to date there. A library is replaced by a rename, so that
    /// a process which has the old one mapped keeps it.
    ///
    /// # Errors
    /// Fails when gcc is not there or reports an error, with its words, or when something cannot be
    /// written.
    pub fn lay_out(dir: &Path) -> io::Result<StandIn> {
        std::fs::create_dir_all(dir)?;
        let it = StandIn {
            dir: dir.canonicalize()?,
        };
        it.library(
            &it.dir.join("driver").join(DRIVER_FILE),
            "libcuda.so.1",
            &["driver.c", "streams.c", "work.c"],
            &[],
        )?;
        let link = it.dir.join("driver/libcuda.so.1");
        // Another process may make the link at the same time.
        match symlink(DRIVER_FILE, link) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let toolkits = MAJORS.map(|(major, _)| Toolkit::Major(major));
        for toolkit in toolkits.into_iter().chain([Toolkit::Bare]) {
            let soname = format!("libcudart.so.{}", toolkit.major());
            let flags = [
                format!("-DMODEL_MAJOR={}", toolkit.major()),
                format!("-L{}", it.dir.join("driver").display()),
                "-Wl,-rpath,$ORIGIN/../driver".to_owned(),
                "-l:libcuda.so.1".to_owned(),
            ];
            let to = it.dir.join(toolkit.folder()).join(&soname);
            it.library(&to, &soname, &["runtime.c"], &flags)?;
        }
        for (major, _) in MAJORS {
            it.cupti_with(major, &major.to_string(), &[])?;
        }
        Ok(it)
    }

    /// Returns the directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the CUDA runtime of a major version.
    pub fn runtime(&self, major: u32) -> PathBuf {
        let folder = self.dir.join(major.to_string());
        folder.join(format!("libcudart.so.{major}"))
    }

    /// Returns the CUPTI of a major version.
    pub fn cupti(&self, major: u32) -> PathBuf {
        self.dir
            .join(major.to_string())
            .join(format!("libcupti.so.{major}"))
    }

    /// Makes a CUPTI that lacks `cuptiFinalize`.
    ///
    /// # Errors
    /// Fails as [`StandIn::lay_out`] does.
    pub fn cupti_without_finalize(&self, major: u32) -> io::Result<PathBuf> {
        let folder = format!("{major}-without-finalize");
        self.cupti_with(major, &folder, &["-DMODEL_WITHOUT_FINALIZE".to_owned()])
    }

    /// Makes a CUPTI that lacks `cuptiActivityEnableHWTrace`, as those before 12.8 do.
    ///
    /// # Errors
    /// Fails as [`StandIn::lay_out`] does.
    pub fn cupti_without_hw_trace(&self, major: u32) -> io::Result<PathBuf> {
        let folder = format!("{major}-without-hw-trace");
        self.cupti_with(major, &folder, &["-DMODEL_WITHOUT_HW_TRACE".to_owned()])
    }

    /// Makes a CUPTI with the companion library next to it that computes metrics. With `wrong`, the
    /// companion's values differ from CUPTI's own.
    ///
    /// # Errors
    /// Fails as [`StandIn::lay_out`] does.
    pub fn cupti_with_companion(&self, major: u32, wrong: bool) -> io::Result<PathBuf> {
        let folder = format!("{major}-{}", if wrong { "wrong" } else { "companion" });
        let cupti = self.cupti_with(major, &folder, &[])?;
        let flags: &[String] = if wrong {
            &["-DMODEL_WRONG".to_owned()]
        } else {
            &[]
        };
        let soname = "libnvperf_host.so";
        self.library(
            &self.dir.join(&folder).join(soname),
            soname,
            &["perf.c"],
            flags,
        )?;
        Ok(cupti)
    }

    /// Makes a CUPTI that cannot sample devices, as before CUDA 12.6.
    ///
    /// # Errors
    /// Fails as [`StandIn::lay_out`] does.
    pub fn cupti_without_sampling(&self, major: u32) -> io::Result<PathBuf> {
        let folder = format!("{major}-without-sampling");
        self.cupti_with(major, &folder, &["-DMODEL_WITHOUT_PM".to_owned()])
    }

    /// Returns the directory of the driver, for the `LD_LIBRARY_PATH` of a program that is not
    /// linked with it.
    pub fn driver(&self) -> PathBuf {
        self.dir.join("driver")
    }

    fn cupti_with(&self, major: u32, folder: &str, more: &[String]) -> io::Result<PathBuf> {
        let version = MAJORS
            .iter()
            .find_map(|(known, version)| (*known == major).then_some(version))
            .ok_or_else(|| io::Error::other(format!("there is no CUPTI {major}")))?;
        let soname = format!("libcupti.so.{major}");
        let to = self.dir.join(folder).join(&soname);
        let mut flags = vec![format!("-DMODEL_VERSION={version}")];
        flags.extend_from_slice(more);
        self.library(
            &to,
            &soname,
            &["cupti.c", "records.c", "marks.c", "pm.c"],
            &flags,
        )?;
        Ok(to)
    }

    /// Returns arguments for gcc, to follow the sources. They find the header, link with the
    /// libraries, and make the program find these at run time without any variable.
    pub fn link_arguments(&self, toolkit: Toolkit) -> Vec<String> {
        let (driver, own) = (self.dir.join("driver"), self.dir.join(toolkit.folder()));
        [
            format!("-I{}", sources().display()),
            format!("-I{}", generated().display()),
            format!("-L{}", driver.display()),
            format!("-L{}", own.display()),
            format!("-Wl,-rpath,{}", driver.display()),
            format!("-Wl,-rpath,{}", own.display()),
            "-Wl,--no-as-needed".to_owned(),
            format!("-l:libcudart.so.{}", toolkit.major()),
            "-l:libcuda.so.1".to_owned(),
            "-pthread".to_owned(),
            "-ldl".to_owned(),
        ]
        .into()
    }

    /// Compiles one library, unless the file was made from the same sources and flags.
    fn library(&self, to: &Path, soname: &str, files: &[&str], flags: &[String]) -> io::Result<()> {
        let mut hasher = DefaultHasher::new();
        // A number to change when the flags below change.
        const FORM: u32 = 4;
        (soname, files, flags, FORM).hash(&mut hasher);
        for header in ["cuda.h", "model.h", "cupti.h", "pm.h"] {
            std::fs::read(sources().join(header))?.hash(&mut hasher);
        }
        std::fs::read(generated().join("records.h"))?.hash(&mut hasher);
        for file in files {
            std::fs::read(sources().join(file))?.hash(&mut hasher);
        }
        let stamp = format!("{:x}", hasher.finish());
        let mut mark = to.as_os_str().to_owned();
        mark.push(".stamp");
        if to.exists() && std::fs::read_to_string(&mark).is_ok_and(|there| there == stamp) {
            return Ok(());
        }
        let folder = to.parent().unwrap_or(&self.dir);
        std::fs::create_dir_all(folder)?;
        let fresh = tempfile::NamedTempFile::new_in(folder)?.into_temp_path();
        let output = Command::new("gcc")
            .args(["-shared", "-fPIC", "-O1", "-g", "-fvisibility=hidden"])
            // This is so in NVIDIA's library, and a tool may put a jump at the entry of a function.
            .arg("-falign-functions=16")
            .args(["-Wall", "-Wextra", "-Werror", "-pthread"])
            .arg(format!("-I{}", generated().display()))
            .arg(format!("-Wl,-soname,{soname}"))
            .arg("-o")
            .arg(&fresh)
            .args(files.iter().map(|file| sources().join(file)))
            .args(flags)
            .args(["-ldl", "-lm"])
            .output()
            .map_err(|error| io::Error::new(error.kind(), format!("gcc: {error}")))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(io::Error::other(format!("gcc: {}: {said}", output.status)));
        }
        fresh.persist(to).map_err(|error| error.error)?;
        std::fs::write(mark, stamp)
    }
}

/// Returns the directory of the C sources. `cuda.h` is for programs.
pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("c")
}

/// Returns the directory of the generated header.
fn generated() -> PathBuf {
    PathBuf::from(env!("OUT_DIR"))
}
