//! Other profilers that a process was started with.
//!
//! Decisions: CUDA-011 (`docs/deviations/cuda.md`).

use crate::process::Process;

/// Libraries by which profilers enter a CUDA process: Nsight Systems, Nsight Compute, nvprof and
/// its relatives.
const LIBRARIES: &[(&str, &str)] = &[
    ("libToolsInjection", "Nsight Systems"),
    ("libcuda-injection", "Nsight Compute"),
    ("libcuinj64", "nvprof"),
];
/// Variables that make the driver load a profiler.
const VARIABLES: &[&str] = &["CUDA_INJECTION64_PATH", "CUDA_INJECTION32_PATH"];

/// The other profiler that uses the process, described for the user; `None` where there is none.
pub fn other_profiler(process: &Process) -> Option<String> {
    for path in &process.mapped {
        let name = path.rsplit('/').next().unwrap_or_default();
        if let Some((_, whose)) = LIBRARIES
            .iter()
            .find(|(prefix, _)| name.starts_with(prefix))
        {
            return Some(format!(
                "{whose} profiles this process: {path} is loaded in it"
            ));
        }
    }
    let (name, path) = VARIABLES
        .iter()
        .find_map(|name| Some((name, process.variable(name)?)))?;
    Some(format!(
        "the process was started with {name}={path}: CUDA loads that profiler"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_profilers_are_known_by_library_and_by_variable() {
        let mut process = Process {
            mapped: vec![
                "/usr/lib/libcuda.so.1".to_owned(),
                "/x/libcupti.so.13".to_owned(),
            ],
            environment: vec![("CUDA_INJECTION64_PATH".to_owned(), String::new())],
        };
        assert_eq!(other_profiler(&process), None);
        process
            .environment
            .push(("CUDA_INJECTION64_PATH".to_owned(), "/a/b.so".to_owned()));
        process.environment.remove(0);
        assert!(
            other_profiler(&process)
                .unwrap()
                .contains("CUDA_INJECTION64_PATH=/a/b.so")
        );
        process
            .mapped
            .push("/opt/nsys/libToolsInjection64.so".to_owned());
        assert!(
            other_profiler(&process)
                .unwrap()
                .starts_with("Nsight Systems profiles this process")
        );
    }
}
