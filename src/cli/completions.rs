//! `convoke completions SHELL`: prints the script that completes commands and options in a shell.

use std::process::ExitCode;

use clap::{Args as ClapArgs, CommandFactory};
use clap_complete::{Shell, generate};

use super::{Cli, Failure, print};

/// Print the completions of a shell.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Which shell
    #[arg(value_enum)]
    shell: Shell,
}

pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    generate(args.shell, &mut Cli::command(), env!("CARGO_PKG_NAME"), &mut script);
    print(&String::from_utf8_lossy(&script))
}
