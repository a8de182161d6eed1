//! Runs the targets on stable Rust: `cargo run --release -- [--seconds N] [--seed N] [TARGET]…`.
//!
//! The inputs depend on the seed alone. One that fails is written to `artifacts/`; given that file in place
//! of a target's name, the driver runs every target on it once.

mod mutate;

use std::error::Error;
use std::panic::catch_unwind;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use forebay_fuzz::{Input, KNOBS, TARGETS, Target};
use mutate::Random;

struct Options {
    seconds: u64,
    seed: u64,
    names: Vec<String>,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let options = parse(std::env::args().skip(1))?;
    let (files, names): (Vec<_>, Vec<_>) = options.names.iter().partition(|name| Path::new(name).is_file());
    for file in &files {
        let bytes = std::fs::read(file)?;
        TARGETS.iter().for_each(|(_, compare)| compare(Input::split(&bytes)));
    }
    if !files.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(unknown) = names.iter().find(|name| TARGETS.iter().all(|(known, _)| known != *name)) {
        return Err(format!("no target or file is called {unknown}").into());
    }
    let chosen =
        TARGETS.iter().filter(|(name, _)| names.is_empty() || names.iter().any(|wanted| wanted == name));
    let mut code = ExitCode::SUCCESS;
    for target in chosen {
        if let Some(failing) = run(target, &options) {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("artifacts");
            std::fs::create_dir_all(&folder)?;
            let path = folder.join(format!("{}-{}", target.0, options.seed));
            std::fs::write(&path, failing)?;
            println!("{:<10} FAILED, the input is in {}", target.0, path.display());
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

/// Returns the first input on which the target and its reference differ.
fn run((name, compare): &Target, options: &Options) -> Option<Vec<u8>> {
    let mut random = Random::new(options.seed);
    let end = Instant::now() + Duration::from_secs(options.seconds);
    let mut count = 0_u64;
    while Instant::now() < end {
        let mut bytes = random.next().to_le_bytes()[..KNOBS].to_vec();
        let mut data = mutate::payload(&mut random);
        mutate::mutate(&mut random, &mut data);
        bytes.append(&mut data);
        if catch_unwind(|| compare(Input::split(&bytes))).is_err() {
            return Some(bytes);
        }
        count += 1;
    }
    println!("{name:<10} {count} inputs, no difference");
    None
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, Box<dyn Error>> {
    let mut options = Options { seconds: 10, seed: 1, names: Vec::new() };
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--seconds" => options.seconds = args.next().ok_or("--seconds needs a number")?.parse()?,
            "--seed" => options.seed = args.next().ok_or("--seed needs a number")?.parse()?,
            _ => options.names.push(arg),
        }
    }
    Ok(options)
}
