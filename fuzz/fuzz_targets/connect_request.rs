#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = midair_hostile::connect_request(bytes);
});
