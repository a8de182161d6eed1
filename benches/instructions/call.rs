//! Calls one routine on a file: `instructions ROUTINE FILE TIMES`, and prints what it returned.
//!
//! `compare.py` counts the instructions of two runs that differ by one call. The difference is the cost of that call.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::hint::black_box;

use forebay_core::{Limits, index_items, index_lines, truncate};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().collect();
    let [_, routine, path, times] = &arguments[..] else {
        return Err("usage: instructions ROUTINE FILE TIMES".into());
    };
    let data = std::fs::read(path)?;
    let mut result = String::new();
    for _ in 0..times.parse()? {
        result = call(routine, black_box(&data))?;
    }
    print!("{result}");
    Ok(())
}

fn call(routine: &str, data: &[u8]) -> Result<String, Box<dyn Error>> {
    Ok(match routine {
        "trusted" => index_items(data, None, false)?.len().to_string(),
        "validated" => index_items(data, None, true)?.len().to_string(),
        "lines" => index_lines(data).len().to_string(),
        "truncate" => String::from_utf8(truncate(data, &Limits::default())?)?,
        _ => return Err(format!("no such routine: {routine}").into()),
    })
}
