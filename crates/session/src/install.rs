//! Where our own libraries are: beside the program or library that runs this code.

use midair_results::{Failure, Kind};
use midair_settings::Settings;
use std::path::{Path, PathBuf};

/// The SDK, below the library directory.
const SDK: &str = "librocprofiler-sdk.so.1";
/// The default tool, below the library directory.
const TOOL: &str = "rocprofiler-sdk/librocprofiler-sdk-tool.so.1";
/// The C API, by whose place the library directory is known when a foreign program loaded it.
const ROCATTACH: &str = "librocprofiler-sdk-rocattach.so";

/// Our libraries.
#[derive(Debug, Clone)]
pub struct Install {
    /// The SDK, which our thread in the target loads.
    pub sdk: PathBuf,
    /// The default tool.
    pub tool: PathBuf,
}

impl Install {
    /// The one that the running code belongs to.
    ///
    /// # Errors
    /// [`Kind::Installation`] when there is none.
    pub fn find() -> Result<Install, Failure> {
        let beside_program = std::env::current_exe()
            .ok()
            .and_then(|exe| Some(exe.parent()?.parent()?.join("lib")));
        let beside_library =
            mapped_library(ROCATTACH).and_then(|library| Some(library.parent()?.to_owned()));
        let tried: Vec<PathBuf> = beside_library.into_iter().chain(beside_program).collect();
        tried.iter().find_map(|directory| Install::below(directory)).ok_or_else(|| {
            let places: Vec<String> = tried.iter().map(|place| place.display().to_string()).collect();
            Failure::new(Kind::Installation, format!("{SDK} and {TOOL} are not in {}", places.join(" or ")))
                .hint("run the program from a complete installation (cargo xtask stage, or cargo xtask install --prefix DIR)")
        })
    }

    fn below(directory: &Path) -> Option<Install> {
        let install = Install {
            sdk: directory.join(SDK),
            tool: directory.join(TOOL),
        };
        (install.sdk.is_file() && install.tool.is_file()).then_some(install)
    }

    /// The tools that the settings name (`ROCPROF_ATTACH_TOOL_LIBRARY`, a list with colons), or the default one. Naming the attach
    /// library itself means the default tool, as callers of the older interface do (seeds/001).
    ///
    /// # Errors
    /// [`Kind::Usage`] when a named one is not a file.
    pub fn tools(&self, settings: &Settings) -> Result<Vec<PathBuf>, Failure> {
        let mut tools = Vec::new();
        for name in settings.list("ROCPROF_ATTACH_TOOL_LIBRARY", ':') {
            let file = Path::new(name)
                .file_name()
                .map(|file| file.to_string_lossy().into_owned())
                .unwrap_or_default();
            let default = file.is_empty()
                || file.starts_with(ROCATTACH)
                || file.starts_with("librocprofiler-sdk-tool.so");
            let path = if default {
                self.tool.clone()
            } else {
                PathBuf::from(name)
            };
            if !path.is_file() {
                return Err(Failure::new(Kind::Usage, format!("the tool library {} is not a file", path.display()))
                    .hint("give its path as this process sees it: it is sent to the target, whose file system does not matter"));
            }
            if !tools.contains(&path) {
                tools.push(path);
            }
        }
        if tools.is_empty() {
            tools.push(self.tool.clone());
        }
        Ok(tools)
    }
}

/// Path of a library of this process whose file name begins so.
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
