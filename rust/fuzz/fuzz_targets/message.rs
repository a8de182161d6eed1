#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| headgate_fuzz::message::compare(headgate_fuzz::Input::split(
    bytes
)));
