//! `midair --version` and `rocprofv3 --version`.

/// The version of the ROCm interfaces that this build implements.
const INTERFACES: &str = "7.2";

/// The git commit from which this was built, or none in a build that was not made for distribution.
const REVISION: Option<&str> = option_env!("MIDAIR_GIT_REVISION");

/// Returns the version and the commit's first twelve letters, as in `0.2.0 (0123456789ab)`.
pub fn midair() -> String {
    let version = env!("CARGO_PKG_VERSION");
    match REVISION.and_then(|revision| revision.get(..12)) {
        Some(short) => format!("{version} ({short})"),
        None => version.to_owned(),
    }
}

/// Returns AMD's nine lines, with our values.
#[expect(clippy::disallowed_methods, reason = "the kernel's own file")]
pub fn rocprofv3() -> String {
    let kernel = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/kernel/{name}"));
        text.map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
    };
    let architecture = std::env::consts::ARCH;
    let lines = [
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("git_revision", REVISION.unwrap_or("unknown").to_owned()),
        ("library_arch", format!("{architecture}-linux-gnu")),
        ("system_name", kernel("ostype")),
        ("system_processor", architecture.to_owned()),
        ("system_version", kernel("osrelease")),
        ("compiler_id", "rustc".to_owned()),
        ("compiler_version", env!("MIDAIR_RUSTC_VERSION").to_owned()),
        ("rocm_version", INTERFACES.to_owned()),
    ];
    lines
        .iter()
        .map(|(key, value)| format!("    {key:>16}: {value}\n"))
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn nine_lines_of_keys_and_values() {
        let text = super::rocprofv3();
        assert_eq!(text.lines().count(), 9);
        for line in text.lines() {
            let (key, value) = line.split_once(": ").unwrap();
            assert_eq!(key.len(), 20, "{line}");
            assert!(!value.is_empty(), "{line}");
        }
    }
}
