//! Settings for samples of program counters. AMD's tool wants all four of them.

/// Whether program counters are sampled (AMD's switch for all that is beta about it).
pub const PC_SAMPLING: &str = "ROCPROFILER_PC_SAMPLING_BETA_ENABLED";
/// `host_trap` or `stochastic`.
pub const PC_SAMPLING_METHOD: &str = "ROCPROF_PC_SAMPLING_METHOD";
/// What the interval counts: `time` (microseconds), `cycles` or `instructions`.
pub const PC_SAMPLING_UNIT: &str = "ROCPROF_PC_SAMPLING_UNIT";
/// The interval.
pub const PC_SAMPLING_INTERVAL: &str = "ROCPROF_PC_SAMPLING_INTERVAL";

/// The settings that go with [`PC_SAMPLING`], and their options.
const PARTS: [(&str, &str); 3] = [
    (PC_SAMPLING_METHOD, "--pc-sampling-method"),
    (PC_SAMPLING_UNIT, "--pc-sampling-unit"),
    (PC_SAMPLING_INTERVAL, "--pc-sampling-interval"),
];

/// Checks that samples are asked for completely, or not at all: whether the switch is on, and the texts
/// of settings.
///
/// # Errors
/// What is missing, or what does not go together.
pub(crate) fn check<'s>(is_on: bool, text: impl Fn(&str) -> Option<&'s str>) -> Result<(), String> {
    let given = |name: &str| text(name).filter(|text| !text.is_empty());
    let any = PARTS.iter().any(|(name, _)| given(name).is_some());
    if !is_on {
        return if any {
            Err("cannot sample program counters: --pc-sampling-beta-enabled is missing".to_owned())
        } else {
            Ok(())
        };
    }
    let missing: Vec<&str> = PARTS
        .iter()
        .filter(|(name, _)| given(name).is_none())
        .map(|(_, option)| *option)
        .collect();
    if !missing.is_empty() {
        return Err(format!(
            "cannot sample program counters: missing {}",
            missing.join(", ")
        ));
    }
    let (method, unit) = (given(PC_SAMPLING_METHOD), given(PC_SAMPLING_UNIT));
    match (method, unit) {
        (Some("host_trap"), Some("time")) | (Some("stochastic"), Some("cycles")) => Ok(()),
        _ => Err(
            "cannot sample program counters: host_trap takes the unit time, stochastic takes cycles"
                .to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(pairs: &[(&str, &'static str)]) -> Result<(), String> {
        let text = |name: &str| {
            let found = pairs.iter().find(|(given, _)| *given == name);
            found.map(|(_, value)| *value)
        };
        check(text(PC_SAMPLING) == Some("1"), text)
    }

    #[test]
    fn all_or_nothing() {
        let on = (PC_SAMPLING, "1");
        let [method, unit, interval] = [
            (PC_SAMPLING_METHOD, "host_trap"),
            (PC_SAMPLING_UNIT, "time"),
            (PC_SAMPLING_INTERVAL, "5"),
        ];
        assert_eq!(checked(&[]), Ok(()));
        assert_eq!(checked(&[on, method, unit, interval]), Ok(()));
        let refused = |pairs: &[_]| checked(pairs).unwrap_err();
        assert!(refused(&[method]).ends_with("--pc-sampling-beta-enabled is missing"));
        assert!(refused(&[on, unit]).ends_with("--pc-sampling-method, --pc-sampling-interval"));
        let cycles = (PC_SAMPLING_UNIT, "cycles");
        assert!(refused(&[on, method, cycles, interval]).contains("host_trap takes the unit time"));
    }
}
