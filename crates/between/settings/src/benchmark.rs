//! What a started program is measured with (`--benchmark-mode`).

/// The variable.
pub const BENCHMARK_MODE: &str = "ROCPROF_BENCHMARK_MODE";

const DISABLED: &str = "disabled-sdk-contexts";
const TOOL: &str = "tool-runtime-overhead";
const PROFILE: &str = "execution-profile";
/// AMD's words.
pub(crate) const BENCHMARK_MODES: &[&str] = &[
    DISABLED,
    "sdk-buffer-overhead",
    "sdk-callback-overhead",
    TOOL,
    PROFILE,
];

/// How much of a profiler runs. None writes files of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Benchmark {
    /// Contexts exist, and none is started.
    DisabledContexts,
    /// Records are made, and dropped as soon as they are read.
    Sdk,
    /// Records are made and stored.
    Tool,
    /// Records are stored, and counted for the file with the settings if that is asked for.
    Profile,
}

impl Benchmark {
    /// Returns the mode by its word.
    pub fn named(word: &str) -> Option<Benchmark> {
        BENCHMARK_MODES.contains(&word).then_some(match word {
            DISABLED => Benchmark::DisabledContexts,
            TOOL => Benchmark::Tool,
            PROFILE => Benchmark::Profile,
            _ => Benchmark::Sdk,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_have_amds_words() {
        let modes = BENCHMARK_MODES.iter().map(|word| Benchmark::named(word));
        let expected = [
            Benchmark::DisabledContexts,
            Benchmark::Sdk,
            Benchmark::Sdk,
            Benchmark::Tool,
            Benchmark::Profile,
        ];
        assert!(modes.eq(expected.map(Some)));
        assert_eq!(Benchmark::named("execution"), None);
    }
}
