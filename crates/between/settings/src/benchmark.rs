//! What a started program is measured with (`--benchmark-mode`).

/// The variable.
pub const BENCHMARK_MODE: &str = "ROCPROF_BENCHMARK_MODE";

const DISABLED: &str = "disabled-sdk-contexts";
const TOOL: &str = "tool-runtime-overhead";
/// AMD's words. Its `execution-profile` is not among them: that writes a file of its own.
pub(crate) const BENCHMARK_MODES: &[&str] = &[
    DISABLED,
    "sdk-buffer-overhead",
    "sdk-callback-overhead",
    TOOL,
];

/// How much of a profiler runs. None writes files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Benchmark {
    /// Contexts exist, and none is started.
    DisabledContexts,
    /// Records are made, and dropped as soon as they are read.
    Sdk,
    /// Records are made and stored.
    Tool,
}

impl Benchmark {
    /// Returns the mode by its word.
    pub fn named(word: &str) -> Option<Benchmark> {
        BENCHMARK_MODES.contains(&word).then_some(match word {
            DISABLED => Benchmark::DisabledContexts,
            TOOL => Benchmark::Tool,
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
        ];
        assert!(modes.eq(expected.map(Some)));
        assert_eq!(Benchmark::named("execution-profile"), None);
    }
}
