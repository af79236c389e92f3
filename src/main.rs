//! The binary: sets up TLS, reads the arguments, runs one command.

use std::process::ExitCode;

use clap::Parser;
use convoke::cli::Cli;

fn main() -> ExitCode {
    // One TLS provider for kube and gix, chosen before anything can ask for another.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    convoke::cli::run(Cli::parse())
}
