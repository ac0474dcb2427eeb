//! The kernel's version, for tests of what only newer ones have.

/// Whether this kernel is of that version or newer.
pub fn linux_from(major: u32, minor: u32) -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    numbers(&release) >= (Some(major), Some(minor))
}

fn numbers(release: &str) -> (Option<u32>, Option<u32>) {
    let mut numbers = release
        .split(['.', '-', '+'])
        .map_while(|it| it.trim().parse().ok());
    (numbers.next(), numbers.next())
}

/// Whether the engine can borrow a running thread here (T3): a kernel before 5.13 does not tell of
/// restartable sequences, and for aarch64 no place in a program is known to be safe. Where it cannot,
/// this says that the test is left out.
///
/// # Errors
/// When that cannot be said.
pub fn has_safe_points() -> crate::Result<bool> {
    let has = linux_from(5, 13) && cfg!(target_arch = "x86_64");
    if !has {
        crate::leave_out("no running thread is borrowed on such a kernel or processor")?;
    }
    Ok(has)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_their_numbers() {
        for (release, is_new) in [
            ("6.1.0-50-cloud-amd64", false),
            ("5.10.0-46-cloud-amd64", false),
            ("6.8", false),
            ("", false),
            ("6.9.0", true),
            ("6.10-rc1\n", true),
            ("6.18.44-fc-v657", true),
            ("7.3.4+deb13-cloud-amd64", true),
        ] {
            assert_eq!(numbers(release) >= (Some(6), Some(9)), is_new, "{release}");
        }
    }
}
