//! Names and values of settings, as a tool in the target reads them.

use crate::counters::{DEVICE_COUNTERS, DEVICE_INTERVAL, EXCLUSIVE};
use crate::traces::{self, THREAD_TRACE, ThreadTrace};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use crate::literal::template;
use crate::options::ask;
use crate::words::tool_boolean;
use midair_domain::kind;

/// The names in older documents of AMD's (`docs/sources.md#register`), and the names that its tool
/// reads today. A current name that is set overrides an old one.
pub const ALIASES: &[(&str, &[&str])] = &[
    (
        "ROCPROF_HIP_API_TRACE",
        &[
            "ROCPROF_HIP_RUNTIME_API_TRACE",
            "ROCPROF_HIP_COMPILER_API_TRACE",
        ],
    ),
    (
        "ROCPROF_HSA_API_TRACE",
        &[
            "ROCPROF_HSA_CORE_API_TRACE",
            "ROCPROF_HSA_AMD_EXT_API_TRACE",
            "ROCPROF_HSA_IMAGE_EXT_API_TRACE",
            "ROCPROF_HSA_FINALIZER_EXT_API_TRACE",
        ],
    ),
    ("ROCPROF_MARKER_TRACE", &["ROCPROF_MARKER_API_TRACE"]),
    ("ROCPROF_LOGGING_LEVEL", &["ROCPROF_LOG_LEVEL"]),
];

/// Variables with the right prefix that must not travel. One selects a library in the attacher only. The
/// other would make the target's registration library load tools that the user did not name for this attach.
const STAY_HERE: &[&str] = &["ROCPROFILER_REGISTER_LIBRARY", "ROCP_TOOL_LIBRARIES"];

/// Whether a line on the standard error of each attached process says that it is attached (a switch). Off where it is
/// not set: that output is the application's.
pub const ATTACH_ANNOUNCE: &str = "ROCPROF_ATTACH_ANNOUNCE";

/// Set by our attacher, whatever was in its environment: tools that the target's own loader must
/// find, separated by colons.
pub const TOOLS_BY_NAME: &str = "ROCP_MIDAIR_TOOLS_BY_NAME";

/// Whether calls of CUDA's runtime, and waits, are recorded (a switch).
pub const CUDA_RUNTIME_API_TRACE: &str = ask(kind::CUDA_RUNTIME_API).name();
/// Whether calls of CUDA's driver, and waits, are recorded (a switch).
pub const CUDA_DRIVER_API_TRACE: &str = ask(kind::CUDA_DRIVER_API).name();
/// Whether launches of HIP's graphs are recorded, with their kernels (a switch).
pub const HIP_GRAPH_TRACE: &str = ask(kind::HIP_GRAPH).name();
/// Whether records of HIP's events and waits for them are recorded (a switch).
pub const HIP_EVENT_TRACE: &str = ask(kind::HIP_EVENT).name();
/// Whether calls of CUDA that only ask for state are recorded, too (a switch).
pub const CUDA_ALL_CALLS: &str = "MIDAIR_CUDA_ALL_CALLS";
/// Whether kernels of a CUDA process are timed by the GPU's own hardware where it can be done (a
/// switch).
pub const CUDA_HW_TRACE: &str = "MIDAIR_CUDA_HW_TRACE";
/// The CUPTI to use in a CUDA process: an absolute path in its mount namespace.
pub const CUPTI: &str = "MIDAIR_CUPTI";
/// The most bytes that the records of one process may take.
pub const MAX_BYTES: &str = "MIDAIR_MAX_BYTES";
/// The percentage of the time that windows of counters may take.
pub const MAX_OVERHEAD: &str = "MIDAIR_MAX_OVERHEAD";
/// Whether kernels that HIP launches several at once are counted one by one (a switch).
pub const GRAPH_KERNELS: &str = "MIDAIR_PMC_GRAPH_KERNELS";
/// The most bytes where the user says nothing: some forty million records.
pub const DEFAULT_MAX_BYTES: u64 = 4 << 30;
/// Columns of the terminal on which a launched program's screen is shown at its end, or 0 without
/// a terminal; followed by `u` if it shows more than ASCII.
pub const SCREEN: &str = "MIDAIR_SCREEN";
/// The directory of the results: a text with keys ([`crate::literal`]).
pub const OUTPUT_PATH: &str = "ROCPROF_OUTPUT_PATH";
/// Whether results get an unused name, instead of replacing an earlier recording's results (a
/// switch).
pub const KEEP_RESULTS: &str = "MIDAIR_KEEP_RESULTS";
/// The directory into which the attaching side writes what was counted so far, while attached.
pub const LIVE_COUNTERS: &str = "MIDAIR_LIVE_COUNTERS";
/// Whether settings are refused that differ from the last attach to a process (a switch).
pub const STRICT_REATTACH: &str = "MIDAIR_STRICT_REATTACH";
/// What is sampled of the whole GPU during a session with a CUDA process: sets and metrics.
pub const GPU_METRICS: &str = "MIDAIR_GPU_METRICS";
/// The number of samples per second.
pub const GPU_METRICS_RATE: &str = "MIDAIR_GPU_METRICS_RATE";
/// The number of the GPU.
pub const GPU_METRICS_DEVICE: &str = "MIDAIR_GPU_METRICS_DEVICE";
/// Whether Kokkos's regions are recorded as markers (a switch).
pub const KOKKOS_TRACE: &str = "MIDAIR_KOKKOS_TRACE";
/// Which stacks are taken of the threads that launch work: `python`, `native`, `both` or `off`.
pub const STACKS: &str = "MIDAIR_STACKS";
/// Which frames of stacks flame graphs have: `frame`, `operator`, `module` or `kernel`.
pub const STACKS_BY: &str = "MIDAIR_STACKS_BY";
/// How much of a processor native stacks may take, in percent.
pub const STACKS_BUDGET: &str = "MIDAIR_STACKS_BUDGET";
/// Settings without a name of AMD's.
pub const OURS: [&str; 22] = [
    DEVICE_COUNTERS,
    DEVICE_INTERVAL,
    EXCLUSIVE,
    CUDA_RUNTIME_API_TRACE,
    CUDA_DRIVER_API_TRACE,
    CUDA_ALL_CALLS,
    CUDA_HW_TRACE,
    CUPTI,
    GPU_METRICS,
    GPU_METRICS_DEVICE,
    GPU_METRICS_RATE,
    GRAPH_KERNELS,
    KEEP_RESULTS,
    KOKKOS_TRACE,
    LIVE_COUNTERS,
    MAX_BYTES,
    MAX_OVERHEAD,
    SCREEN,
    STACKS,
    STACKS_BUDGET,
    STACKS_BY,
    STRICT_REATTACH,
];

/// Whether a variable of the attacher's environment travels with an attach: those that start with `ROCP`,
/// except two, and [`OURS`].
pub fn inheritable(name: &str) -> bool {
    (name.starts_with("ROCP") && !STAY_HERE.contains(&name)) || OURS.contains(&name)
}

/// Whether a setting names a file, a directory or a library. This is decided by parts of its name,
/// so that it holds for unknown names, too.
pub fn names_a_file(name: &str) -> bool {
    const PARTS: [&str; 6] = ["PATH", "FILE", "DIR", "LIBRAR", "CUPTI", "TOPOLOGY"];
    // `ROCPROF_HIPFILE_API_TRACE` is a switch.
    (PARTS.iter().any(|part| name.contains(part)) && !name.ends_with("_TRACE"))
        || [TOOLS_BY_NAME, LIVE_COUNTERS].contains(&name)
        || name == "ROCPROF_STATS_SUMMARY_OUTPUT"
}

/// A setting whose value is not what its reader needs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}={}: {wanted}", shown(value))]
pub struct BadValue {
    /// The variable.
    pub name: String,
    /// Its value.
    pub value: String,
    /// What was wanted.
    pub wanted: String,
}

/// How many characters of a value are shown.
const SHOWN: usize = 80;

/// As much of a value as a reader needs.
fn shown(value: &str) -> String {
    match value.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", value.get(..end).unwrap_or_default()),
        None => value.to_owned(),
    }
}

impl BadValue {
    /// For readers that convert values themselves.
    pub fn new(name: &str, value: &str, wanted: &str) -> BadValue {
        BadValue {
            name: name.to_owned(),
            value: value.to_owned(),
            wanted: wanted.to_owned(),
        }
    }
}

/// An ordered map of setting names to values. The getters know the old names in [`ALIASES`]; the map itself
/// keeps what was set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    values: BTreeMap<String, String>,
}

impl Settings {
    /// No settings.
    pub fn new() -> Settings {
        Settings::default()
    }

    /// Takes the [`inheritable`] variables of an environment. A value that is not UTF-8 is refused, since it
    /// would be damaged on the way, except the directory of the results.
    pub fn from_environment(
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Settings, BadValue> {
        let mut settings = Settings::new();
        for (name, value) in variables {
            let Some(name) = name.to_str().filter(|name| inheritable(name)) else {
                continue;
            };
            if name == OUTPUT_PATH {
                settings.set(name, template(value.as_encoded_bytes()));
                continue;
            }
            let Some(text) = value.to_str() else {
                return Err(BadValue::new(
                    name,
                    &OsStr::to_string_lossy(&value),
                    "is not UTF-8",
                ));
            };
            settings.set(name, text);
        }
        Ok(settings)
    }

    /// The same without those that name files or libraries ([`names_a_file`]).
    #[must_use]
    pub fn without_files(mut self) -> Settings {
        self.values.retain(|name, _| !names_a_file(name));
        self
    }

    /// The same without those that an attach comes too late for: OpenMP's runtime asks for its tool
    /// once, when it starts.
    #[must_use]
    pub fn without_those_of_a_start(mut self) -> Settings {
        for name in ["ROCPROF_OMPT_TRACE", "ROCPROF_OMPT_TRACE_OPERATIONS"] {
            self.values.remove(name);
        }
        self
    }

    /// Sets a value, replacing an earlier one.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.values.insert(name.into(), value.into());
    }

    /// Removes a value, together with old names that stand for it. An old name that stands for several
    /// settings keeps standing for the others.
    pub fn remove(&mut self, name: &str) {
        for (old, current) in ALIASES {
            if current.contains(&name)
                && let Some(value) = self.values.remove(*old)
            {
                for other in *current {
                    self.values
                        .entry((*other).to_owned())
                        .or_insert_with(|| value.clone());
                }
            }
        }
        self.values.remove(name);
    }

    /// The value of a setting, under its own name or an old one.
    pub fn get(&self, name: &str) -> Option<&str> {
        if let Some(value) = self.values.get(name) {
            return Some(value);
        }
        let (old, _) = ALIASES
            .iter()
            .find(|(_, current)| current.contains(&name))?;
        self.values.get(*old).map(String::as_str)
    }

    /// A boolean by the rules of AMD's tool ([`tool_boolean`]), or `None` if it is not set.
    pub fn boolean(&self, name: &str) -> Result<Option<bool>, BadValue> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        match tool_boolean(value) {
            Some(boolean) => Ok(Some(boolean)),
            None => Err(BadValue::new(
                name,
                value,
                "is empty, but must be a boolean",
            )),
        }
    }

    /// Returns what thread traces are asked for; `None` where none are.
    ///
    /// # Errors
    /// Values that cannot be read, or that make no trace, in words.
    pub fn thread_trace(&self) -> Result<Option<ThreadTrace>, String> {
        traces::read(self.is_on(THREAD_TRACE), |name| self.text(name))
    }

    /// Whether a setting is on. A setting that is not set, or empty, is off.
    pub fn is_on(&self, name: &str) -> bool {
        matches!(self.boolean(name), Ok(Some(true)))
    }

    /// A whole number, decimal or hexadecimal with `0x`, or `None` if it is not set or empty.
    pub fn number(&self, name: &str) -> Result<Option<u64>, BadValue> {
        let Some(value) = self
            .get(name)
            .map(str::trim)
            .filter(|value| !value.is_empty())
        else {
            return Ok(None);
        };
        let parsed = match value
            .strip_prefix("0x")
            .or_else(|| value.strip_prefix("0X"))
        {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => value.parse(),
        };
        parsed
            .map(Some)
            .map_err(|_| BadValue::new(name, value, "is not a whole number"))
    }

    /// A text, or `None` if it is not set or empty.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|value| !value.is_empty())
    }

    /// The parts of a list, trimmed, without empty ones.
    pub fn list(&self, name: &str, separator: char) -> Vec<&str> {
        let parts = self.get(name).unwrap_or_default().split(separator);
        parts
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .collect()
    }

    /// Names and values in the order of the names, as they were set (old names stay old).
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The number of settings.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Settings {
    fn from_iter<T: IntoIterator<Item = (N, V)>>(pairs: T) -> Settings {
        let mut settings = Settings::new();
        for (name, value) in pairs {
            settings.set(name, value);
        }
        settings
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    #[test]
    fn old_names_speak_until_the_current_one_does() {
        let mut settings = Settings::from_iter([
            ("ROCPROF_HIP_API_TRACE", "1"),
            ("ROCPROF_LOGGING_LEVEL", "trace"),
        ]);
        assert!(settings.is_on("ROCPROF_HIP_RUNTIME_API_TRACE"));
        assert!(settings.is_on("ROCPROF_HIP_COMPILER_API_TRACE"));
        assert_eq!(settings.text("ROCPROF_LOG_LEVEL"), Some("trace"));
        settings.set("ROCPROF_HIP_RUNTIME_API_TRACE", "0");
        assert!(!settings.is_on("ROCPROF_HIP_RUNTIME_API_TRACE"));
        assert!(settings.is_on("ROCPROF_HIP_COMPILER_API_TRACE"));
        assert!(!settings.is_on("ROCPROF_HSA_CORE_API_TRACE"));
    }

    #[test]
    fn settings_that_name_files_are_known_by_their_names() {
        let all = [
            ("ROCPROF_OUTPUT_PATH", "/etc"),
            ("ROCPROF_OUTPUT_FILE_NAME", "x"),
            ("ROCPROF_TMPDIR", "/x"),
            ("ROCPROF_ATTACH_TOOL_LIBRARY", "/x.so"),
            (TOOLS_BY_NAME, "libx.so"),
            (CUPTI, "/x.so"),
            ("ROCPROF_STATS_SUMMARY_OUTPUT", "/x"),
            ("ROCPROF_HIPFILE_API_TRACE", "1"),
            ("ROCPROF_KERNEL_TRACE", "1"),
            ("ROCPROF_OUTPUT_FORMAT", "csv"),
        ];
        let kept = Settings::from_iter(all).without_files();
        let names: Vec<&str> = kept.iter().map(|(name, _)| name).collect();
        assert_eq!(
            names,
            [
                "ROCPROF_HIPFILE_API_TRACE",
                "ROCPROF_KERNEL_TRACE",
                "ROCPROF_OUTPUT_FORMAT"
            ]
        );
    }

    /// Each part alone decides, also in names that are not known yet.
    #[test]
    fn each_part_of_a_name_that_means_a_file_counts_alone() {
        for name in [
            "ROCP_NEW_PATH",
            "ROCP_NEW_FILE",
            "ROCP_NEW_DIR",
            "ROCP_NEW_LIBRARY",
            "ROCP_NEW_LIBRARIES",
            "ROCP_CUPTI_HOME",
            "ROCP_TOPOLOGY_ROOT",
            TOOLS_BY_NAME,
            "ROCPROF_STATS_SUMMARY_OUTPUT",
        ] {
            assert!(names_a_file(name), "{name}");
        }
        for name in [
            "ROCPROF_HIPFILE_API_TRACE",
            "ROCP_PATH_TRACE",
            "ROCPROF_STATS_SUMMARY",
            "ROCPROF_OUTPUT_FORMAT",
            "ROCP_NEW",
        ] {
            assert!(!names_a_file(name), "{name}");
        }
    }

    #[test]
    fn removing_takes_the_old_name_along_but_not_its_other_meanings() {
        let mut settings = Settings::from_iter([("ROCPROF_HIP_API_TRACE", "1")]);
        settings.remove("ROCPROF_HIP_COMPILER_API_TRACE");
        assert!(!settings.is_on("ROCPROF_HIP_COMPILER_API_TRACE"));
        assert!(settings.is_on("ROCPROF_HIP_RUNTIME_API_TRACE"));
    }

    #[test]
    fn typed_values() {
        let settings = Settings::from_iter([
            ("A", "0x10"),
            ("B", "12 "),
            ("C", "twelve"),
            ("D", ""),
            ("E", "csv, json,,"),
        ]);
        assert_eq!(settings.number("A"), Ok(Some(16)));
        assert_eq!(settings.number("B"), Ok(Some(12)));
        assert!(settings.number("C").is_err());
        assert_eq!(settings.number("D"), Ok(None));
        assert_eq!(settings.number("Z"), Ok(None));
        assert!(settings.boolean("D").is_err());
        assert!(!settings.is_on("D"));
        assert_eq!(settings.text("D"), None);
        assert_eq!(settings.list("E", ','), ["csv", "json"]);
        assert_eq!(settings.boolean("C"), Ok(Some(true)));
    }

    #[test]
    fn a_bad_value_is_shown_up_to_80_characters() {
        let said = |value: &str| BadValue::new("A", value, "is bad").to_string();
        assert_eq!(said(""), "A=: is bad");
        assert_eq!(said("x y"), "A=x y: is bad");
        // Characters and not bytes are counted: this one has two.
        for letter in ["x", "\u{e9}"] {
            let most = letter.repeat(80);
            assert_eq!(said(&most), format!("A={most}: is bad"));
            let more = letter.repeat(81);
            assert_eq!(said(&more), format!("A={most}...: is bad"));
        }
    }

    #[test]
    fn an_attach_comes_too_late_for_openmp_alone() {
        let all = [
            ("ROCPROF_OMPT_TRACE", "1"),
            ("ROCPROF_OMPT_TRACE_OPERATIONS", "task"),
            ("ROCPROF_KERNEL_TRACE", "1"),
            (KOKKOS_TRACE, "0"),
        ];
        let kept = Settings::from_iter(all).without_those_of_a_start();
        assert_eq!(
            kept.iter().collect::<Vec<_>>(),
            [(KOKKOS_TRACE, "0"), ("ROCPROF_KERNEL_TRACE", "1")]
        );
        assert!(!kept.is_empty());
        let none = Settings::from_iter(all[..2].iter().copied()).without_those_of_a_start();
        assert!(none.is_empty() && none == Settings::new());
    }

    #[test]
    fn only_rocp_variables_travel() {
        let environment = |pairs: &[(&str, &[u8])]| {
            let pairs: Vec<_> = pairs
                .iter()
                .map(|(name, value)| (OsString::from(name), OsString::from_vec(value.to_vec())))
                .collect();
            Settings::from_environment(pairs)
        };
        let settings = environment(&[
            ("PATH", b"/bin"),
            ("ROCPROF_KERNEL_TRACE", b"1"),
            ("ROCPROFILER_REGISTER_LIBRARY", b"/x"),
            ("ROCP_TOOL_LIBRARIES", b"/y"),
            ("LD_PRELOAD", b"\xff"),
            ("MIDAIR_CUPTI", b"/x/libcupti.so.12"),
            ("MIDAIR_STAGE", b"/y"),
        ])
        .unwrap();
        assert_eq!(
            settings.iter().collect::<Vec<_>>(),
            [
                ("MIDAIR_CUPTI", "/x/libcupti.so.12"),
                ("ROCPROF_KERNEL_TRACE", "1")
            ]
        );
        let refused = environment(&[("ROCPROF_OUTPUT_FORMAT", b"csv\xff")]).unwrap_err();
        assert_eq!(refused.name, "ROCPROF_OUTPUT_FORMAT");
        let directory = environment(&[(OUTPUT_PATH, b"/%pid%/\xff")]).unwrap();
        assert_eq!(directory.text(OUTPUT_PATH), Some("/%pid%/%byte-ff%"));
    }
}
