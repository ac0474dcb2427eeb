//! The one table of the environment variables `MIDAIR_*`: `cargo xtask docs` writes it into
//! `docs/dev/environment.md`, and the check compares it with all sources.

use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Who reads or sets a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// An option sets it; the code inside the target reads it from the settings.
    Setting,
    /// The engine, or the build of a shipped program.
    Product,
    /// `cargo xtask` and the suite.
    Suite,
    /// A test, a bench or a fuzzer.
    Test,
}

/// A variable, who uses it, and its meaning.
type Variable = (&'static str, Use, &'static str);

const VARIABLES: &[Variable] = &[
    (
        "MIDAIR_CUDA_ALL_CALLS",
        Use::Setting,
        "record CUDA calls that only query state, too",
    ),
    (
        "MIDAIR_CUDA_DRIVER_API_TRACE",
        Use::Setting,
        "record calls of CUDA's driver, and waits",
    ),
    (
        "MIDAIR_CUDA_HW_TRACE",
        Use::Setting,
        "let the GPU's own hardware time CUDA kernels if it can",
    ),
    (
        "MIDAIR_CUDA_RUNTIME_API_TRACE",
        Use::Setting,
        "record calls of CUDA's runtime, and waits",
    ),
    (
        "MIDAIR_CUPTI",
        Use::Setting,
        "absolute path of CUPTI in the process's mount namespace",
    ),
    (
        "MIDAIR_EXCLUSIVE",
        Use::Setting,
        "give counter windows the GPU for themselves",
    ),
    (
        "MIDAIR_GPU_METRICS",
        Use::Setting,
        "sets and metrics sampled on the whole GPU",
    ),
    (
        "MIDAIR_GPU_METRICS_DEVICE",
        Use::Setting,
        "number of the sampled GPU",
    ),
    (
        "MIDAIR_GPU_METRICS_RATE",
        Use::Setting,
        "samples per second",
    ),
    (
        "MIDAIR_KEEP_RESULTS",
        Use::Setting,
        "give results an unused name instead of replacing earlier ones",
    ),
    (
        "MIDAIR_KOKKOS_TRACE",
        Use::Setting,
        "record Kokkos's regions as markers",
    ),
    (
        "MIDAIR_LIVE_COUNTERS",
        Use::Setting,
        "directory for the counts so far, while attached",
    ),
    (
        "MIDAIR_MAX_BYTES",
        Use::Setting,
        "limit of the records of one process, in bytes",
    ),
    (
        "MIDAIR_MAX_OVERHEAD",
        Use::Setting,
        "limit of the time in counter windows or bursts, in percent",
    ),
    (
        "MIDAIR_PMC_DEVICE",
        Use::Setting,
        "counter groups of whole devices, one a line",
    ),
    (
        "MIDAIR_PMC_DEVICE_INTERVAL",
        Use::Setting,
        "interval between their readings, in milliseconds",
    ),
    (
        "MIDAIR_PMC_GRAPH_KERNELS",
        Use::Setting,
        "count kernels that HIP launches together one by one",
    ),
    (
        "MIDAIR_SCREEN",
        Use::Setting,
        "columns of the terminal of a launched program, 0 if there is none",
    ),
    (
        "MIDAIR_STACKS",
        Use::Setting,
        "record the stacks of threads that launch work: python, native, both or off",
    ),
    (
        "MIDAIR_STACKS_BUDGET",
        Use::Setting,
        "how much of a processor native stacks may take, in percent",
    ),
    (
        "MIDAIR_STACKS_BY",
        Use::Setting,
        "show stacks by frame, operator, module or kernel",
    ),
    (
        "MIDAIR_STRICT_REATTACH",
        Use::Setting,
        "refuse settings that differ from the process's last attach",
    ),
    (
        "MIDAIR_GIT_REVISION",
        Use::Product,
        "commit that `--version` prints (set at build time)",
    ),
    (
        "MIDAIR_NEVER_BORROW",
        Use::Product,
        "first letters of names of threads that the engine never borrows, separated by commas",
    ),
    (
        "MIDAIR_RUSTC_VERSION",
        Use::Product,
        "compiler that `--version` prints (set by the build script)",
    ),
    (
        "MIDAIR_SERVE_PACE",
        Use::Product,
        "how much faster the turns of `midair serve --always` pass than they do: for tests of hours",
    ),
    (
        "MIDAIR_ADVISORY_DB",
        Use::Suite,
        "directory of RustSec's database, read in addition to `advisories/`",
    ),
    (
        "MIDAIR_AMD_HEADERS",
        Use::Suite,
        "1: fail instead of leaving out the tests against AMD's headers",
    ),
    (
        "MIDAIR_AMD_HEADERS_DIR",
        Use::Suite,
        "directory of AMD's headers (set by the suite)",
    ),
    (
        "MIDAIR_CHROMIUM",
        Use::Suite,
        "1: fail instead of leaving out the tests in a browser",
    ),
    (
        "MIDAIR_DEBIAN_12",
        Use::Suite,
        "root directory of a bare Debian 12 (set by the suite)",
    ),
    (
        "MIDAIR_DIST",
        Use::Suite,
        "directory of the packages (set by the suite)",
    ),
    (
        "MIDAIR_FLAKY",
        Use::Suite,
        "directory of the lists of flaky tests; default `target/flaky`",
    ),
    (
        "MIDAIR_FRIDA",
        Use::Suite,
        "Python with frida for the torture matrix (set by `cargo xtask torture`)",
    ),
    (
        "MIDAIR_FUZZ",
        Use::Suite,
        "directory, from the root, for corpora and artifacts of the fuzzers",
    ),
    (
        "MIDAIR_LAB",
        Use::Suite,
        "root directory of the lab; default `/var/tmp/rocm-lab`",
    ),
    (
        "MIDAIR_LEFT_OUT",
        Use::Suite,
        "file to which tests append the reason why they were left out",
    ),
    (
        "MIDAIR_PYTHON",
        Use::Suite,
        "Python environment that reads result files (set by the suite)",
    ),
    (
        "MIDAIR_ROOT",
        Use::Suite,
        "root of the checkout if xtask was copied to another machine",
    ),
    (
        "MIDAIR_SKIP_LAB",
        Use::Suite,
        "1: leave out tests in the lab",
    ),
    (
        "MIDAIR_SKIP_WALK",
        Use::Suite,
        "1: leave out the walk on a bare Debian",
    ),
    (
        "MIDAIR_STAGE",
        Use::Suite,
        "directory of the staged programs and libraries; default `target/stage`",
    ),
    (
        "MIDAIR_TRITON",
        Use::Suite,
        "directory of Triton's package (set by the suite)",
    ),
    (
        "MIDAIR_VM",
        Use::Suite,
        "cache of kernels and images for `cargo vm`",
    ),
    (
        "MIDAIR_APART_CASE",
        Use::Test,
        "case that a unit test of `ptrace::helper_process` runs in a child",
    ),
    (
        "MIDAIR_BENCH_SECONDS",
        Use::Test,
        "length of the bench `live`, in seconds",
    ),
    (
        "MIDAIR_CUPTI_FILES",
        Use::Test,
        "paths of real CUPTI libraries, separated by colons, for an ignored test",
    ),
    (
        "MIDAIR_CYCLES",
        Use::Test,
        "cycles of the tests that attach again and again; 20 in the suite",
    ),
    (
        "MIDAIR_DIES_IN",
        Use::Test,
        "directory in which a child of a test of `output` dies",
    ),
    (
        "MIDAIR_EXPORT_KEEP",
        Use::Test,
        "directory that keeps the files of the bench `export`",
    ),
    (
        "MIDAIR_EXPORT_ONLY",
        Use::Test,
        "the sets and formats of the bench `export`, as 'calls, csv'",
    ),
    (
        "MIDAIR_EXPORT_RECORDS",
        Use::Test,
        "number of records of the bench `export`",
    ),
    (
        "MIDAIR_EXPORT_RUNS",
        Use::Test,
        "number of runs of each set of the bench `export`",
    ),
    (
        "MIDAIR_GROWTH",
        Use::Test,
        "sessions between the two measurements of the tests of growth, 5 to 200",
    ),
    (
        "MIDAIR_LONG",
        Use::Test,
        "1: run the long form of tests, on an idle machine",
    ),
    (
        "MIDAIR_SLOWER",
        Use::Test,
        "factor for deadlines on an emulated processor, 1 to 100",
    ),
    (
        "MIDAIR_SMALL_DISK",
        Use::Test,
        "directory of a full file system for a child of a test of `output`",
    ),
    (
        "MIDAIR_VIEWS_LAUNCHES",
        Use::Test,
        "number of launches of the bench `views`",
    ),
    (
        "MIDAIR_WATCH_CASE",
        Use::Test,
        "case that a unit test of `ptrace::watch` runs in a child",
    ),
];

/// Names in sources that are no variables: a test's own, and the start of a name that is put together.
const NO_VARIABLES: &[&str] = &[
    "MIDAIR_EXPORT_",
    "MIDAIR_NOBODY_SETS_THIS",
    "MIDAIR_TEST_SECRET",
];

/// Around the table in `docs/dev/environment.md`.
pub const MARKERS: [&str; 2] = [
    "<!-- variables: made by `cargo xtask docs` from dev/docs/src/environment.rs -->\n",
    "<!-- end of variables -->",
];

/// Returns the tables of the page.
pub fn markdown() -> String {
    let parts = [
        (
            Use::Setting,
            "Set by options, read in the target ([Options](../options.md))",
        ),
        (Use::Product, "Of the programs themselves"),
        (Use::Suite, "Of `cargo xtask` and the suite"),
        (Use::Test, "Of single tests and benches"),
    ];
    let mut out = String::new();
    for (part, title) in parts {
        let _ = write!(out, "\n## {title}\n\n| variable | meaning |\n|---|---|\n");
        for (name, _, meaning) in VARIABLES.iter().filter(|variable| variable.1 == part) {
            let _ = writeln!(out, "| `{name}` | {meaning} |");
        }
    }
    out + "\n"
}

/// Reports variables that sources name and the table lacks, and rows that no source names.
///
/// `sources` are pairs of a path and a text.
pub fn check<'a>(sources: impl Iterator<Item = (&'a str, &'a str)>, mistakes: &mut Vec<String>) {
    let known: BTreeSet<&str> = VARIABLES.iter().map(|variable| variable.0).collect();
    let mut unused = known.clone();
    for (path, text) in sources {
        for name in names(text) {
            unused.remove(name);
            if !known.contains(name) && !NO_VARIABLES.contains(&name) {
                mistakes.push(format!(
                    "{path}: {name} is not in dev/docs/src/environment.rs"
                ));
            }
        }
    }
    // The bench puts these names together.
    unused.retain(|name| !name.starts_with("MIDAIR_EXPORT_"));
    for name in unused {
        mistakes.push(format!(
            "dev/docs/src/environment.rs: no source names {name}"
        ));
    }
}

/// Returns the words of a text that start with `MIDAIR_`.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| word.len() > "MIDAIR_".len() && word.starts_with("MIDAIR_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_variable_and_an_unused_row_are_reported() {
        let mut mistakes = Vec::new();
        let text = concat!("var(\"MIDAIR", "_NEW\"), MIDAIR_STAGE, ROCP_MIDAIR_TOOLS");
        check([("a.rs", text)].into_iter(), &mut mistakes);
        let new = concat!("a.rs: MIDAIR", "_NEW is not in dev/docs/src/environment.rs");
        assert_eq!(mistakes.first().map(String::as_str), Some(new));
        // Each other row is unused by this text, except those that a bench puts together.
        let put_together = VARIABLES
            .iter()
            .filter(|row| row.0.starts_with("MIDAIR_EXPORT_"));
        assert_eq!(mistakes.len(), VARIABLES.len() - put_together.count());
        assert!(
            mistakes
                .iter()
                .all(|mistake| !mistake.contains("MIDAIR_STAGE"))
        );
    }

    #[test]
    fn rows_are_sorted_and_each_is_in_the_tables() {
        let text = markdown();
        for pair in VARIABLES.windows(2) {
            assert!(pair[0].1 != pair[1].1 || pair[0].0 < pair[1].0, "{pair:?}");
        }
        assert!(VARIABLES.iter().all(|row| text.contains(row.0)));
    }
}
