//! The kernel's version, for tests of what only newer ones have.

/// Whether this kernel is of that version or newer.
pub fn linux_from(major: u32, minor: u32) -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    numbers(&release) >= (Some(major), Some(minor))
}

/// How many times slower than a real processor this one is, if it is emulated (`cargo vm`);
/// otherwise 1.
pub fn times_slower() -> u32 {
    let said = std::env::var("MIDAIR_SLOWER").ok();
    let times = said.and_then(|times| times.parse().ok());
    times.filter(|times| (1..=100).contains(times)).unwrap_or(1)
}

fn numbers(release: &str) -> (Option<u32>, Option<u32>) {
    let mut numbers = release
        .split(['.', '-', '+'])
        .map_while(|it| it.trim().parse().ok());
    (numbers.next(), numbers.next())
}

/// Whether the engine can borrow a running thread in the program's own code here (T3): a kernel before
/// 5.13 does not tell of restartable sequences, and see [`borrows_running_threads`]. Where it cannot,
/// this says that the test is left out.
///
/// # Errors
/// When that cannot be said.
pub fn has_safe_points() -> crate::Result<bool> {
    let old = "no running thread is borrowed in its own code on this kernel";
    Ok(borrows_running_threads()? && (linux_from(5, 13) || said(old)?))
}

/// Whether the engine borrows running threads at all, at least just behind a system call: on aarch64
/// no place of a program is known to be safe. Where it does not, this says that the test is left out.
///
/// # Errors
/// When that cannot be said.
pub fn borrows_running_threads() -> crate::Result<bool> {
    Ok(cfg!(target_arch = "x86_64") || said("no running thread is borrowed on this processor")?)
}

/// Says that the test is left out, which is false.
fn said(why: &str) -> crate::Result<bool> {
    crate::leave_out(why).map(|()| false)
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
