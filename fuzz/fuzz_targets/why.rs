#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = midair_hostile::why(bytes);
});
