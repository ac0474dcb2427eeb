//! The generated names and layouts of CUPTI, compared with what is known from elsewhere.

use midair_abi::cupti::{
    LAYOUTS, activity_kind, attribute, cuda_version, driver_cbid, driver_name, flag, layouts_for,
    memcpy_kind, result, runtime_cbid, runtime_name, synchronization,
};

#[test]
fn calls_have_the_names_that_cuda_has() {
    assert_eq!(runtime_name(1), Some("cudaDriverGetVersion"));
    assert_eq!(runtime_name(211), Some("cudaLaunchKernel"));
    assert_eq!(runtime_name(214), Some("cudaLaunchKernel_ptsz"));
    // `_v2` belongs to the call's name; the number after it was added by CUPTI.
    assert_eq!(runtime_cbid("cudaCreateTextureObject_v2"), Some(434));
    // In 12.0 this call had a number as its name.
    assert_eq!(runtime_name(444), Some("cudaInitDevice"));
    assert_eq!(driver_name(1), Some("cuInit"));
    assert_eq!(driver_name(307), Some("cuLaunchKernel"));
    assert_eq!(driver_cbid("cuLaunchKernelEx_ptsz"), Some(653));
    assert_eq!(driver_name(243), Some("cuMemAlloc_v2"));
    for none in [0, 10_000, u32::MAX] {
        assert_eq!((runtime_name(none), driver_name(none)), (None, None));
    }
    assert_eq!((runtime_cbid(""), driver_cbid("cuda25")), (None, None));
    let named = |name: fn(u32) -> Option<&'static str>| (0..2000).filter_map(name).count();
    assert_eq!((named(runtime_name), named(driver_name)), (555, 867));
}

#[test]
fn enumerators_have_their_numbers_and_names() {
    assert_eq!(activity_kind::CONCURRENT_KERNEL, 10);
    assert_eq!(activity_kind::name(22), Some("MEMCPY2"));
    assert_eq!(activity_kind::name(0x7fff_ffff), None);
    assert_eq!(
        result::name(39),
        Some("ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED")
    );
    assert_eq!(result::name(0), Some("SUCCESS"));
    assert_eq!(memcpy_kind::name(10), Some("PTOP"));
    assert_eq!(synchronization::CONTEXT_SYNCHRONIZE, 4);
    assert_eq!(attribute::DEVICE_BUFFER_SIZE, 0);
    assert_eq!(flag::MARKER_END, 4);
}

#[test]
fn a_version_that_is_not_known_takes_the_next_lower_ones_layouts() {
    let of = |api| layouts_for(api).map(|layouts| layouts.cuda);
    assert_eq!(of(17), None);
    assert_eq!(of(18), Some((12, 1)));
    assert_eq!(of(25), Some((12, 6)));
    assert_eq!(of(28), Some((12, 9)));
    assert_eq!(of(130_001), Some((13, 0)));
    assert_eq!(of(130_999), Some((13, 5)));
    assert_eq!(of(140_000), None);
    assert_eq!(of(u32::MAX), None);
    assert_eq!(cuda_version(17), None);
    assert_eq!(cuda_version(27), Some((12, 9)));
    assert_eq!(cuda_version(130_202), Some((13, 2)));
}

/// The reason why a newer version may be read with the newest layouts that we know.
#[test]
fn no_field_that_we_read_has_ever_moved() {
    for pair in LAYOUTS.windows(2) {
        let [old, new] = pair else { panic!() };
        assert!(old.api <= new.api && old.cuda <= new.cuda);
        let mut same = *new;
        same.cuda = old.cuda;
        same.api = old.api;
        for (old, same) in [
            (old.kernel.size, &mut same.kernel.size),
            (old.memcpy.size, &mut same.memcpy.size),
            (old.memcpy_peer.size, &mut same.memcpy_peer.size),
            (old.memset.size, &mut same.memset.size),
            (old.call.size, &mut same.call.size),
            (old.marker.size, &mut same.marker.size),
            (old.synchronization.size, &mut same.synchronization.size),
            (old.memory.size, &mut same.memory.size),
            (old.unified_memory.size, &mut same.unified_memory.size),
        ] {
            assert!(old <= *same, "a record became smaller");
            *same = old;
        }
        assert_eq!(same, *old);
    }
    assert_eq!((LAYOUTS[0].cuda, LAYOUTS[0].kernel.size), ((12, 0), 208));
    let newest = LAYOUTS.last().unwrap();
    assert_eq!((newest.kernel.size, newest.kernel.name.offset), (248, 104));
}
