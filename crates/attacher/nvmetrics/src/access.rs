//! What the kernel's driver says of who may count, without loading anything.

#![expect(
    clippy::disallowed_methods,
    reason = "files of the kernel's and of NVIDIA's driver"
)]

use std::path::Path;

/// Who may read counters of GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// There is no NVIDIA driver here.
    NoDriver,
    /// Anybody.
    All,
    /// Whoever has CAP_SYS_ADMIN, which this process has.
    Admin,
    /// Whoever has CAP_SYS_ADMIN, which this process has not.
    Refused,
}

/// Reads the driver's parameter (source: NVIDIA's page on ERR_NVGPUCTRPERM:
/// `RmProfilingAdminOnly`).
pub fn access() -> Access {
    of(Path::new("/proc/driver/nvidia/params"), may_administrate())
}

fn of(params: &Path, admin: bool) -> Access {
    let Ok(text) = std::fs::read_to_string(params) else {
        return Access::NoDriver;
    };
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix("RmProfilingAdminOnly:"));
    match value.map(str::trim) {
        // Where the parameter is missing, the default of drivers since 418.43 holds: administrators
        // only.
        Some("0") => Access::All,
        _ if admin => Access::Admin,
        _ => Access::Refused,
    }
}

/// Returns whether a GPU of this machine is divided into parts (source: NVIDIA's guide to MIG: such
/// a part has a directory below `/proc/driver/nvidia/capabilities/gpuN/mig`).
pub fn is_divided() -> bool {
    divided(Path::new("/proc/driver/nvidia/capabilities"))
}

fn divided(capabilities: &Path) -> bool {
    let below = |directory: &Path| std::fs::read_dir(directory).into_iter().flatten().flatten();
    let is_part = |name: &str| name.starts_with("gi");
    below(capabilities).any(|gpu| {
        below(&gpu.path().join("mig")).any(|part| part.file_name().to_str().is_some_and(is_part))
    })
}

/// The first device number of Turing, the oldest family that CUPTI samples. Volta's end below
/// it (source: the list of supported products in the README of NVIDIA's driver).
const TURING: u32 = 0x1e00;

/// Returns the first GPU of this machine that is older than what CUPTI samples: its place on the bus,
/// and its device number.
pub fn too_old() -> Option<(String, u32)> {
    older(
        Path::new("/proc/driver/nvidia/gpus"),
        Path::new("/sys/bus/pci/devices"),
    )
}

fn older(gpus: &Path, devices: &Path) -> Option<(String, u32)> {
    let mut places: Vec<String> = std::fs::read_dir(gpus)
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    places.sort();
    places.into_iter().find_map(|place| {
        let text = std::fs::read_to_string(devices.join(&place).join("device")).ok()?;
        let number = u32::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()?;
        (number < TURING).then_some((place, number))
    })
}

/// Programs that use a GPU's counters themselves, each with the name of its product.
const PROFILERS: [(&str, &str); 4] = [
    ("nv-hostengine", "DCGM"),
    ("dcgm-exporter", "DCGM"),
    ("ncu", "Nsight Compute"),
    ("nsys", "Nsight Systems"),
];

/// Returns the first of these programs that runs here, with its product. Whether it uses the
/// counters at the moment is not known.
pub fn other_profiler() -> Option<(&'static str, &'static str)> {
    let processes = || std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let runs = |wanted: &str| {
        processes().any(|entry| {
            let comm = std::fs::read_to_string(entry.path().join("comm"));
            // The kernel cuts names at 15 bytes.
            comm.is_ok_and(|comm| comm.trim_end() == wanted.get(..15).unwrap_or(wanted))
        })
    };
    PROFILERS.into_iter().find(|(name, _)| runs(name))
}

/// Whether this process has CAP_SYS_ADMIN.
fn may_administrate() -> bool {
    const SYS_ADMIN: u32 = 21;
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    effective.is_some_and(|bits| bits >> SYS_ADMIN & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_gpu_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!divided(dir.path()));
        std::fs::create_dir_all(dir.path().join("gpu0/mig")).unwrap();
        std::fs::create_dir_all(dir.path().join("mig")).unwrap();
        assert!(!divided(dir.path()));
        std::fs::create_dir(dir.path().join("gpu0/mig/gi1")).unwrap();
        assert!(divided(dir.path()));
    }

    #[test]
    fn a_gpu_before_turing_is_too_old() {
        let dir = tempfile::tempdir().unwrap();
        let (gpus, devices) = (dir.path().join("gpus"), dir.path().join("devices"));
        assert_eq!(older(&gpus, &devices), None);
        let put = |place: &str, number: &str| {
            std::fs::create_dir_all(gpus.join(place)).unwrap();
            std::fs::create_dir_all(devices.join(place)).unwrap();
            std::fs::write(devices.join(place).join("device"), number).unwrap();
        };
        // An H100, an RTX 2080 Ti, and a card whose number is none.
        put("0000:19:00.0", "0x2330\n");
        put("0000:3b:00.0", "0x1e04\n");
        put("0000:5d:00.0", "odd\n");
        assert_eq!(older(&gpus, &devices), None);
        // A V100.
        put("0000:af:00.0", "0x1db1\n");
        assert_eq!(
            older(&gpus, &devices),
            Some(("0000:af:00.0".to_owned(), 0x1db1))
        );
    }

    #[test]
    fn the_driver_s_parameter_decides() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("params");
        assert_eq!(of(&file, true), Access::NoDriver);
        std::fs::write(
            &file,
            "ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\n",
        )
        .unwrap();
        assert_eq!(
            (of(&file, true), of(&file, false)),
            (Access::Admin, Access::Refused)
        );
        std::fs::write(&file, "RmProfilingAdminOnly: 0\n").unwrap();
        assert_eq!(of(&file, false), Access::All);
    }
}
