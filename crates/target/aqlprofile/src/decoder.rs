//! AMD's decoder of thread traces, which midair does not ship: where it is, and what to say about it.

use midair_settings::{Settings, TRACE_LIBRARY_PATH};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The decoder's file.
const DECODER: &str = "librocprof-trace-decoder.so";

/// Returns the decoder, if it is where the settings or ROCm have it. `look` reads a variable.
pub fn decoder(settings: &Settings, look: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let named = settings.list(TRACE_LIBRARY_PATH, ':').into_iter();
    let named: Vec<PathBuf> = named.map(PathBuf::from).collect();
    let of_rocm = crate::roots(look).into_iter().map(|root| root.join("lib"));
    found(named.into_iter().chain(of_rocm))
}

fn found(directories: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    let mut files = directories.map(|directory| directory.join(DECODER));
    files.find(|file| file.is_file())
}

/// Returns what the user should know about the traces of a session.
pub fn decoder_note(decoder: Option<&Path>) -> String {
    match decoder {
        Some(path) => format!(
            "thread traces are in the .att files: ROCprof Compute Viewer and AMD's decoder ({}) read them with the .out files",
            path.display()
        ),
        None => "thread traces are in the .att files, not decoded: install AMD's rocprof-trace-decoder (in ROCm 7.13 and newer), or name its directory by --att-library-path".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_decoder_is_found_where_the_user_says() {
        let dir = tempfile::tempdir().unwrap();
        let empty = dir.path().join("empty");
        let paths = format!("{}:{}", empty.display(), dir.path().display());
        let settings: Settings = [(TRACE_LIBRARY_PATH, paths.as_str())].into_iter().collect();
        assert_eq!(found([empty.clone(), dir.path().into()].into_iter()), None);
        let file = dir.path().join(DECODER);
        std::fs::write(&file, "").unwrap();
        assert_eq!(decoder(&settings, |_| None), Some(file.clone()));
        assert!(decoder_note(Some(&file)).contains(DECODER));
        assert!(decoder_note(None).contains("--att-library-path"));
    }
}
