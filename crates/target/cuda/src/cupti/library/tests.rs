//! Which files are usable and which are not, and the reasons.

use super::*;
use std::ffi::{c_char, c_int};

fn why(wanted: &str, driver: u32) -> String {
    load(&Process::own(false), Some(wanted), driver).unwrap_err()
}

#[test]
fn unusable_files_are_refused_with_the_reason() {
    for (path, reason) in [
        ("/nowhere/libcupti.so.13", "does not exist"),
        ("/etc/passwd", "is not a 64-bit library"),
        ("/tmp", "is not a file"),
        ("libcupti.so.13", "is not an absolute path"),
        ("/x/libcupti.so.11.8", "is CUPTI 11, and midair needs 12.0"),
        (
            "/x/libcupti.so.14",
            "is CUPTI 14, and the driver has CUDA 13.0",
        ),
    ] {
        let text = why(path, 13_000);
        assert_eq!(text.matches(path).count(), 1, "{text}");
        assert!(text.contains(reason), "{text}");
        assert!(!text.contains('\n'));
    }
    let libc = Process::own(false).mapped;
    let libc = libc.iter().find(|it| it.contains("libc.so")).unwrap();
    let text = why(libc, 13_000);
    assert!(text.contains("has no function cuptiGetVersion"), "{text}");
}

#[test]
fn a_driver_that_is_too_old_or_of_unknown_version_is_the_reason() {
    assert!(why("/x", 0).contains("does not report its version"));
    assert!(why("/x", 11_080).contains("has CUDA 11.8"));
}

#[test]
fn long_reasons_are_truncated_at_a_character() {
    let text = why(&format!("/{}", "ä".repeat(2000)), 13_000);
    assert!(text.len() <= MOST_TEXT + 3 && text.ends_with('…'), "{text}");
}

unsafe extern "C" fn none() -> u32 {
    result::ERROR_NOT_INITIALIZED
}

fn table(version: unsafe extern "C" fn(*mut u32) -> u32) -> Functions {
    // SAFETY: only the version function is called below.
    let functions = unsafe { Functions::find(|_| none as *mut c_void) };
    Functions {
        get_version: version,
        ..functions.unwrap()
    }
}

#[test]
fn the_version_selects_the_layouts() {
    unsafe extern "C" fn of_13_2(version: *mut u32) -> u32 {
        // SAFETY: a valid out pointer of the caller.
        unsafe { *version = 130_205 };
        0
    }
    unsafe extern "C" fn of_14(version: *mut u32) -> u32 {
        // SAFETY: as above.
        unsafe { *version = 140_000 };
        0
    }
    unsafe extern "C" fn of_11(version: *mut u32) -> u32 {
        // SAFETY: as above.
        unsafe { *version = 17 };
        0
    }
    unsafe extern "C" fn silent(_: *mut u32) -> u32 {
        result::ERROR_UNKNOWN
    }
    // SAFETY: functions that behave like CUPTI's in what is called.
    let of = |version| unsafe { Cupti::with_functions(table(version)) };
    let cupti = of(of_13_2).unwrap();
    assert_eq!((cupti.cuda(), cupti.layouts().cuda), ((13, 2), (13, 2)));
    assert_eq!(cupti.finalize(), Err(Status(result::ERROR_NOT_INITIALIZED)));
    assert!(
        of(of_14)
            .unwrap_err()
            .contains("CUPTI 14.0 (interface version 140000), newer than")
    );
    assert!(of(of_11).unwrap_err().contains("older than CUDA 12.0"));
    assert!(of(silent).unwrap_err().contains("CUPTI_ERROR_UNKNOWN"));
}

#[test]
fn a_missing_function_is_named() {
    // SAFETY: nothing is called.
    let found = unsafe {
        Functions::find(|name| {
            if name == c"cuptiFinalize" {
                std::ptr::null_mut()
            } else {
                none as *mut c_void
            }
        })
    };
    assert_eq!(found.unwrap_err(), "cuptiFinalize");
    // SAFETY: nothing is called.
    let old = unsafe {
        Functions::find(|name| {
            if name == c"cuptiActivityEnableRuntimeApi" {
                std::ptr::null_mut()
            } else {
                none as *mut c_void
            }
        })
    };
    assert!(old.unwrap().enable_runtime_api.is_none());
}

/// Real libraries, where there are some: up to 13.1 they return their version without a GPU.
#[test]
#[ignore = "needs NVIDIA's libraries: MIDAIR_CUPTI_FILES=PATH:PATH..."]
fn real_cupti_libraries_are_opened() {
    let files = std::env::var("MIDAIR_CUPTI_FILES").unwrap();
    let mut versions = Vec::new();
    for path in files.split(':') {
        let origin = Origin::Named;
        let path = path.to_owned();
        let cupti = Cupti::open(&Candidate { path, origin }, 13_000).unwrap();
        assert!(cupti.symbol(c"cuptiSubscribe").is_some());
        assert!(cupti.symbol(c"cuptiNothing").is_none());
        assert!(cupti.timestamp().unwrap() > 1 << 60);
        let unknown = cupti.result_text(Status(result::ERROR_INVALID_KIND));
        assert_eq!(unknown, "CUPTI_ERROR_INVALID_KIND");
        assert_eq!(Status(result::ERROR_INVALID_KIND).to_string(), unknown);
        versions.push((cupti.api(), cupti.layouts().api));
    }
    assert!(
        versions.iter().all(|(told, known)| told == known),
        "{versions:?}"
    );
    eprintln!("{versions:?}");
}

#[test]
fn the_driver_reports_its_devices() {
    unsafe extern "C" fn version(at: *mut c_int) -> u32 {
        // SAFETY: a valid out pointer of the caller.
        unsafe { *at = 13_000 };
        0
    }
    unsafe extern "C" fn count(at: *mut c_int) -> u32 {
        // SAFETY: as above.
        unsafe { *at = 2 };
        0
    }
    unsafe extern "C" fn get(at: *mut c_int, ordinal: c_int) -> u32 {
        // SAFETY: as above.
        unsafe { *at = ordinal + 40 };
        0
    }
    unsafe extern "C" fn name(at: *mut c_char, room: c_int, _: c_int) -> u32 {
        let text = c"NVIDIA H200";
        assert!(room > 16);
        // SAFETY: as above, and the buffer is large enough.
        unsafe { at.copy_from_nonoverlapping(text.as_ptr(), 12) };
        0
    }
    unsafe extern "C" fn attribute(at: *mut c_int, which: c_int, device: c_int) -> u32 {
        assert!(device >= 40);
        // SAFETY: as above.
        unsafe { *at = 1000 + which };
        u32::from(which == 36)
    }
    // SAFETY: functions of the types that the driver's have.
    let driver = unsafe {
        crate::cupti::Driver::find(|symbol| match symbol.to_bytes() {
            b"cuDriverGetVersion" => version as *mut c_void,
            b"cuDeviceGetCount" => count as *mut c_void,
            b"cuDeviceGet" => get as *mut c_void,
            b"cuDeviceGetName" => name as *mut c_void,
            b"cuDeviceGetAttribute" => attribute as *mut c_void,
            _ => std::ptr::null_mut(),
        })
    };
    let driver = driver.unwrap();
    assert_eq!(driver.version(), 13_000);
    let devices = driver.devices();
    assert_eq!(devices.len(), 2);
    let (device, name) = &devices[1];
    assert_eq!((name.as_str(), device.ordinal), ("NVIDIA H200", 1));
    assert_eq!((device.major, device.minor), (1075, 1076));
    assert_eq!(device.block_limits, [1002, 1003, 1004]);
    assert_eq!((device.memory, device.memory_clock_khz), (0, 0));
}
