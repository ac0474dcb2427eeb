#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    midair_hostile::code_object(bytes);
});
