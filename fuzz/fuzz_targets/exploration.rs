#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| iteragpu_lab_fuzz::exploration::check(data));
