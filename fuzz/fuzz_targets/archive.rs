//! See `lwp_fuzz::TARGETS`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    (lwp_fuzz::target("archive").expect("a target").body)(bytes);
});
