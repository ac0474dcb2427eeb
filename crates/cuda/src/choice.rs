//! What is recorded: from the settings to kinds of activity.

use midair_settings::{CUDA_DRIVER_API_TRACE, CUDA_RUNTIME_API_TRACE, CUPTI, Settings};

/// What a session is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Kernels.
    pub kernels: bool,
    /// Copies and fills of memory.
    pub copies: bool,
    /// Calls of the runtime.
    pub runtime_calls: bool,
    /// Calls of the driver.
    pub driver_calls: bool,
    /// NVTX marks and ranges.
    pub markers: bool,
    /// Allocations, releases, and moves of unified memory.
    pub memory: bool,
    /// The CUPTI that the user named: a path in the target's own file system.
    pub cupti: Option<String>,
}

impl Choice {
    /// Calls of either, with which waits are recorded.
    pub fn calls(&self) -> bool {
        self.runtime_calls || self.driver_calls
    }

    /// Reads the settings. Where none of the switches is on, kernels and copies are recorded, less what is switched off.
    pub fn of(settings: &Settings) -> Choice {
        let on = |name: &str| settings.is_on(name);
        let mut choice = Choice {
            kernels: on("ROCPROF_KERNEL_TRACE"),
            copies: on("ROCPROF_MEMORY_COPY_TRACE"),
            runtime_calls: on(CUDA_RUNTIME_API_TRACE),
            driver_calls: on(CUDA_DRIVER_API_TRACE),
            markers: on("ROCPROF_MARKER_API_TRACE"),
            memory: on("ROCPROF_MEMORY_ALLOCATION_TRACE"),
            cupti: settings.text(CUPTI).map(str::to_owned),
        };
        let nothing =
            !(choice.kernels || choice.copies || choice.calls() || choice.markers || choice.memory);
        if nothing {
            let off = |name: &str| matches!(settings.boolean(name), Ok(Some(false)));
            choice.kernels = !off("ROCPROF_KERNEL_TRACE");
            choice.copies = !off("ROCPROF_MEMORY_COPY_TRACE");
        }
        choice
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[(&str, &str)]) -> Choice {
        let mut settings = Settings::new();
        for (name, value) in words {
            settings.set(*name, *value);
        }
        Choice::of(&settings)
    }

    #[test]
    fn kernels_and_copies_where_nothing_is_said() {
        let choice = of(&[]);
        assert!(choice.kernels && choice.copies);
        assert!(!choice.calls() && !choice.markers && !choice.memory);
        assert_eq!(choice.cupti, None);
        let choice = of(&[("ROCPROF_MEMORY_COPY_TRACE", "0")]);
        assert!(choice.kernels && !choice.copies);
    }

    #[test]
    fn what_is_said_and_no_more() {
        let choice = of(&[
            (CUDA_DRIVER_API_TRACE, "1"),
            (CUPTI, "/opt/x/libcupti.so.13"),
        ]);
        assert!(choice.calls() && !choice.runtime_calls && !choice.kernels && !choice.copies);
        assert_eq!(choice.cupti.as_deref(), Some("/opt/x/libcupti.so.13"));
        let choice = of(&[
            ("ROCPROF_MARKER_TRACE", "true"),
            ("ROCPROF_MEMORY_ALLOCATION_TRACE", "1"),
        ]);
        assert!(choice.markers && choice.memory && !choice.kernels && !choice.calls());
    }
}
