//! The settings for the tool in the target, from the caller's own environment.

use midair_failure::{Failure, Kind};
use midair_settings::{CUPTI, Settings};
use std::ffi::OsString;

/// Names of variables with libraries that the target will load. A set-user-id program must not take
/// them from its caller.
const LIBRARY_NAMES: &[&str] = &[
    "ROCPROF_ATTACH_TOOL_LIBRARY",
    "ROCPROF_ATTACH_LIBRARY",
    CUPTI,
];

/// Returns the settings in `environment`, and the names that were left out because this program
/// runs with more rights than its caller.
///
/// # Errors
/// [`Kind::Usage`] for a value that cannot be passed on unchanged.
pub fn of(
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    secure: bool,
) -> Result<(Settings, Vec<&'static str>), Failure> {
    let mut settings = Settings::from_environment(environment)
        .map_err(|bad| Failure::new(Kind::Usage, bad.to_string()))?;
    let mut left_out = Vec::new();
    if secure {
        for name in LIBRARY_NAMES {
            if settings.get(name).is_some() {
                settings.remove(name);
                left_out.push(*name);
            }
        }
    }
    Ok((settings, left_out))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment() -> Vec<(OsString, OsString)> {
        [
            ("ROCPROF_KERNEL_TRACE", "1"),
            ("ROCPROFSYS_X", "2"),
            ("ROCPROFILER_REGISTER_LIBRARY", "/ours/libsdk.so"),
            ("ROCPROF_ATTACH_TOOL_LIBRARY", "/tmp/tool.so"),
            ("PATH", "/bin"),
            ("XROCPROF", "no"),
        ]
        .map(|(n, v)| (n.into(), v.into()))
        .to_vec()
    }

    #[test]
    fn only_names_that_begin_with_rocp_travel() {
        let (settings, left_out) = of(environment(), false).unwrap();
        let names: Vec<&str> = settings.iter().map(|(name, _)| name).collect();
        assert_eq!(
            names,
            [
                "ROCPROFSYS_X",
                "ROCPROF_ATTACH_TOOL_LIBRARY",
                "ROCPROF_KERNEL_TRACE"
            ]
        );
        assert!(left_out.is_empty());
    }

    #[test]
    fn a_program_with_more_rights_takes_no_library_from_its_caller() {
        let (settings, left_out) = of(environment(), true).unwrap();
        assert_eq!(settings.get("ROCPROF_ATTACH_TOOL_LIBRARY"), None);
        assert_eq!(settings.get("ROCPROF_KERNEL_TRACE"), Some("1"));
        assert_eq!(left_out, ["ROCPROF_ATTACH_TOOL_LIBRARY"]);
    }

    #[test]
    fn a_value_that_would_be_damaged_is_refused() {
        use std::os::unix::ffi::OsStringExt;
        let bad = vec![(
            "ROCPROF_OUTPUT_FILE_NAME".into(),
            OsString::from_vec(vec![b'/', 0xff]),
        )];
        assert_eq!(of(bad, false).unwrap_err().kind, Kind::Usage);
    }
}
