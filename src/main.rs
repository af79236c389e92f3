//! The binary: sets up TLS, parses the arguments, and runs one command.

use std::process::ExitCode;

use clap::Parser;
use convoke::cli::Cli;

fn main() -> ExitCode {
    // kube and gix share one TLS provider. It must be set before its first use.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    convoke::cli::run(Cli::parse())
}
