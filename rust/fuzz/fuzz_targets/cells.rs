#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| forebay_fuzz::cells::compare(forebay_fuzz::Input::split(bytes)));
