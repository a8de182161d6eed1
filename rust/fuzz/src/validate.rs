//! Validating: compared with serde_json, line by line.

use forebay_core::Isa;
use forebay_core::validate::Validator;

use crate::{Input, oracle};

pub fn compare(Input { knobs, data }: Input<'_>) {
    let is_valid = oracle::is_json(data) || oracle::rows(data).is_some_and(|rows| rows.len() > 1);
    let step = usize::from(knobs[0]) + 1;
    let mut first = None;
    for isa in Isa::available() {
        let whole = validate(isa, data, data.len());
        assert_eq!(whole.is_ok(), is_valid, "{isa:?} says {whole:?}");
        assert_eq!(validate(isa, data, step), whole, "{isa:?} in pieces of {step}");
        assert_eq!(*first.get_or_insert(whole.clone()), whole, "{isa:?} differs from another");
        if let Err(error) = whole {
            check_index(isa, data, error.index);
        }
    }
    compare_long(data, step * 40);
}

/// Bytes that the quick checks read together are fewer.
const LONG_BYTES: usize = 10_000;

/// Compares the instruction sets on a payload that is long enough for all of their steps.
fn compare_long(data: &[u8], step: usize) {
    let mut long = b"[".to_vec();
    while long.len() < LONG_BYTES {
        long.extend(data);
        long.push(b',');
    }
    long.extend(b"0]");
    let mut first = None;
    for isa in Isa::available() {
        let whole = validate(isa, &long, long.len());
        assert_eq!(validate(isa, &long, step), whole, "{isa:?} in pieces of {step}");
        assert_eq!(*first.get_or_insert(whole.clone()), whole, "{isa:?} differs from another");
    }
}

/// Checks that the bytes before the reported one may still become valid.
fn check_index(isa: Isa, data: &[u8], index: u64) {
    let index = usize::try_from(index).expect("an index into the payload");
    assert!(index <= data.len());
    let mut before = Validator::new(isa);
    assert_eq!(before.feed(&data[..index]), Ok(()), "reported too late");
}

fn validate(isa: Isa, data: &[u8], step: usize) -> forebay_core::Result<()> {
    let mut validator = Validator::new(isa);
    for piece in data.chunks(step.max(1)) {
        validator.feed(piece)?;
    }
    validator.finish()
}
