//! How a person opens the results.

use std::path::{Path, PathBuf};

/// How files with these endings are opened, the longer ending first. `FILE` stands for the file.
const WAYS: [(&str, &str); 11] = [
    (
        "pftrace",
        "FILE at https://ui.perfetto.dev (Open trace file)",
    ),
    (
        "pt.trace.json",
        "FILE with HolisticTraceAnalysis or TensorBoard, or at https://ui.perfetto.dev",
    ),
    ("speedscope.json", "FILE at https://www.speedscope.app"),
    ("pb.gz", "go tool pprof -http=: FILE"),
    ("folded", "flamegraph.pl FILE > FILE.svg"),
    ("html", "FILE in any browser"),
    ("db", "midair show FILE"),
    ("parquet", "midair show FILE"),
    ("csv", "midair show FILE, or FILE in a spreadsheet"),
    ("json", "FILE with jq or any JSON reader"),
    ("otf2", "FILE in Vampir, or: otf2-print FILE"),
];

/// Returns how to open the results: for each sort of file among these, the way for one of them,
/// which is named in full.
pub(super) fn ways(files: &[PathBuf]) -> Vec<String> {
    let ending = |file: &Path| {
        let name = file.file_name()?.to_string_lossy().into_owned();
        let ends = |end: &&str| name.strip_suffix(*end)?.strip_suffix('.').map(drop);
        WAYS.iter()
            .map(|(end, _)| *end)
            .find(|end| ends(end).is_some())
    };
    let way = |(end, way): (&str, &str)| {
        let mut of_this = files.iter().filter(|file| ending(file) == Some(end));
        // Of the csv files, people look at the trace of kernels first.
        let first = of_this.clone().find(|file| {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            name.ends_with("_kernel_trace.csv")
        });
        let file = first.or_else(|| of_this.next())?;
        Some(way.replace("FILE", &file.display().to_string()))
    };
    WAYS.into_iter().filter_map(way).collect()
}

/// Returns where the files are: the file itself, or their number and their directory.
pub(super) fn place(files: &[PathBuf]) -> Option<String> {
    let (first, rest) = files.split_first()?;
    if rest.is_empty() {
        return Some(first.display().to_string());
    }
    let directory = first.parent()?;
    let together = rest.iter().all(|file| file.parent() == Some(directory));
    Some(match together {
        true => format!("{} files in {}", files.len(), directory.display()),
        false => format!("{} files, {} and others", files.len(), first.display()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sort_of_file_is_opened_once() {
        let files: Vec<PathBuf> = [
            "a_agent_info.csv",
            "a_kernel_trace.csv",
            "a_results.db",
            "a_results.pt.trace.json",
            "a.other",
        ]
        .map(|name| Path::new("/d").join(name))
        .to_vec();
        assert_eq!(
            ways(&files),
            [
                "/d/a_results.pt.trace.json with HolisticTraceAnalysis or TensorBoard, or at https://ui.perfetto.dev",
                "midair show /d/a_results.db",
                "midair show /d/a_kernel_trace.csv, or /d/a_kernel_trace.csv in a spreadsheet",
            ]
        );
        assert_eq!(place(&files).as_deref(), Some("5 files in /d"));
        assert_eq!(place(&files[..1]).as_deref(), Some("/d/a_agent_info.csv"));
        let apart = ["/d/a.csv".into(), "/e/a.csv".into()];
        assert_eq!(
            place(&apart).as_deref(),
            Some("2 files, /d/a.csv and others")
        );
        assert_eq!(place(&[]), None);
    }
}
