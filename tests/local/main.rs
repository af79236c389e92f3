//! Everything that runs a program, a Git server or files, and needs no cluster.

mod append_image;
mod behaviours;
mod bench_parts;
mod build_layers;
mod cli;
mod documented;
mod fuzz;
mod git_remote;
mod hostile_folder;
mod layers;
mod policies;
mod push_image;
mod steps;
