//! The names and the family of a GPU, found without libdrm.
//!
//! AMD asks libdrm for the marketing name and the family. libdrm reads the name from its
//! `amdgpu.ids` by PCI device and revision; we read the same file. The family is a number of the
//! amdgpu driver for each generation. The driver reports it only through an ioctl on the render
//! node, so we derive it from the target version.

/// Returns the name of a target version: "gfx942" for 90402. It is empty below gfx 1. The stepping
/// is hexadecimal (gfx90a).
pub fn gfx_name(gfx_target_version: u32) -> String {
    if gfx_target_version < 10_000 {
        return String::new();
    }
    let (major, minor, step) = (
        gfx_target_version / 10_000 % 100,
        gfx_target_version / 100 % 100,
        gfx_target_version % 100,
    );
    format!("gfx{major}{minor}{step:x}")
}

/// Returns amdgpu's family number (`AMDGPU_FAMILY_*` of the kernel's uapi header amdgpu_drm.h) for
/// a target version, or 0 if it is unknown.
///
/// It differs from libdrm's only where two generations share a target version: gfx1036 is 149 on GC
/// 10.3.6 (returned here) and 151 on GC 10.3.7.
pub fn family_id(gfx_target_version: u32) -> u32 {
    let (major, minor, step) = (
        gfx_target_version / 10_000,
        gfx_target_version / 100 % 100,
        gfx_target_version % 100,
    );
    match (major, minor, step) {
        (6, ..) => 110,
        (7, 0, 0) => 125,
        (7, ..) => 120,
        (8, 0, 1) | (8, 1, 0) => 135,
        (8, ..) => 130,
        (9, 0, 2 | 9 | 12) => 142,
        (9, ..) => 141,
        (10, 3, 3) => 144,
        (10, 3, 5) => 146,
        (10, 3, 6) => 149,
        (10, ..) => 143,
        (11, 0, 3) => 148,
        (11, 0, _) => 145,
        (11, ..) => 150,
        (12, ..) => 152,
        _ => 0,
    }
}

/// Returns the marketing name of a PCI device and revision, from the text of an `amdgpu.ids` file.
/// Its lines are `DEVICE, REVISION, NAME` with hexadecimal numbers, and `#` starts a comment.
pub fn marketing_name(ids: &str, device: u16, revision: u8) -> Option<String> {
    ids.lines()
        .filter(|line| !line.starts_with('#'))
        .find_map(|line| {
            let mut parts = line.splitn(3, ',').map(str::trim);
            let same_device = u16::from_str_radix(parts.next()?, 16).ok()? == device;
            let same_revision = u8::from_str_radix(parts.next()?, 16).ok()? == revision;
            (same_device && same_revision)
                .then(|| parts.next().map(str::to_owned))
                .flatten()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_versions_have_names_and_families() {
        for (version, name, family) in [
            (90_402, "gfx942", 141),
            (90_010, "gfx90a", 141),
            (90_012, "gfx90c", 142),
            (100_300, "gfx1030", 143),
            (110_003, "gfx1103", 148),
            (120_001, "gfx1201", 152),
            (90_500, "gfx950", 141),
        ] {
            assert_eq!(
                (gfx_name(version).as_str(), family_id(version)),
                (name, family),
                "{version}"
            );
        }
        assert_eq!((gfx_name(0).as_str(), family_id(0)), ("", 0));
    }

    #[test]
    fn marketing_names_need_device_and_revision() {
        let ids = "# device_id,\trevision_id,\tproduct_name\n1.0.0\n74A1,\t00,\tAMD Instinct MI300X\n74A1,\t01,\tother, with a comma\n";
        assert_eq!(
            marketing_name(ids, 0x74a1, 0).as_deref(),
            Some("AMD Instinct MI300X")
        );
        assert_eq!(
            marketing_name(ids, 0x74a1, 1).as_deref(),
            Some("other, with a comma")
        );
        assert_eq!(marketing_name(ids, 0x74a1, 2), None);
    }
}
