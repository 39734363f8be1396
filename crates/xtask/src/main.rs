//! Upkeep of the workspace: `cargo xtask lint` checks what no compiler does.
#![forbid(unsafe_code)]

mod lint;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask lint    file lengths and links between documents";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["lint"] => lint::run(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(0) => ExitCode::SUCCESS,
        Ok(found) => {
            eprintln!("xtask lint: {found} finding(s)");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
