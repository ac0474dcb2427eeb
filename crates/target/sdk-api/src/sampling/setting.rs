//! What is sampled.

use midair_abi::constants as c;

/// What is sampled, in AMD's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// `rocprofiler_pc_sampling_method_t`.
    pub method: i32,
    /// `rocprofiler_pc_sampling_unit_t`.
    pub unit: i32,
    /// How many of these units lie between two samples.
    pub interval: u64,
}

impl Setting {
    /// Whether the device takes the samples by itself.
    pub fn is_stochastic(&self) -> bool {
        self.method == c::ROCPROFILER_PC_SAMPLING_METHOD_STOCHASTIC
    }
}

/// `rocprofiler_pc_sampling_configuration_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Configuration {
    pub size: u64,
    pub method: i32,
    pub unit: i32,
    pub least: usize,
    pub most: usize,
    pub flags: u64,
}

impl Configuration {
    pub fn fits(&self, setting: &Setting) -> bool {
        let interval = setting.interval as usize;
        let is_power = interval.is_power_of_two()
            || self.flags & c::ROCPROFILER_PC_SAMPLING_CONFIGURATION_FLAGS_INTERVAL_POW2 as u64
                == 0;
        (self.method, self.unit) == (setting.method, setting.unit)
            && (self.least..=self.most).contains(&interval)
            && is_power
    }
}

/// The samples of a context.
#[derive(Debug)]
pub(crate) struct SamplesService {
    pub setting: Setting,
    /// The nodes of the agents, and the buffer of each.
    pub buffers: Vec<(u32, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_fits_what_is_offered() {
        let offered = Configuration {
            size: 40,
            method: c::ROCPROFILER_PC_SAMPLING_METHOD_STOCHASTIC,
            unit: c::ROCPROFILER_PC_SAMPLING_UNIT_CYCLES,
            least: 256,
            most: 4096,
            flags: 1,
        };
        let setting = |interval| Setting {
            method: offered.method,
            unit: offered.unit,
            interval,
        };
        let fitting: Vec<u64> = [128, 256, 257, 4096, 8192]
            .into_iter()
            .filter(|interval| offered.fits(&setting(*interval)))
            .collect();
        assert_eq!(fitting, [256, 4096]);
        let other = Setting {
            unit: c::ROCPROFILER_PC_SAMPLING_UNIT_TIME,
            ..setting(256)
        };
        assert!(!offered.fits(&other));
    }
}
