//! The benchmark: the shipped operator on a real control plane, against what the machine can do in the same run.
//!
//! `scripts/bench` runs it; docs/benchmarks.md says what is measured and how.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

mod api_server;
mod change;
mod children;
mod life;
mod limit;
mod limits;
mod managed_fields;
mod many_syncs;
mod numbers;
mod options;
mod process;
mod report;
mod repositories;
mod repository;
mod stage;
// The harness of the tests stops the benchmark as it stops a test.
#[allow(clippy::expect_used, clippy::panic)]
#[path = "../../tests/support/mod.rs"]
mod support;
mod whole;

use std::process::ExitCode;
use std::time::Instant;

use options::{Controllers, Options, Run};
use report::Report;
use repository::Fleet;
use serde_json::{Value, json};
use stage::{Outcome, Stage};

/// Set by `scripts/bench`: without it nothing runs, so that `cargo test --all-targets` does not start a benchmark.
const ASKED: &str = "CONVOKE_BENCH";

fn main() -> ExitCode {
    if std::env::var_os(ASKED).is_none() {
        eprintln!("nothing measured: use scripts/bench");
        return ExitCode::SUCCESS;
    }
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    runtime.block_on(measure(&options))
}

/// The limit's workers, found once, and the tries that found them.
type Plateau = Option<(usize, Vec<(usize, f64)>)>;

async fn measure(options: &Options) -> ExitCode {
    let (mut report, mut plateau) = (Report::default(), None);
    let complete = tokio::select! {
        complete = runs(options, &mut plateau, &mut report) => complete,
        () = interrupted() => false,
    };
    if !complete {
        report.note("not everything was measured".to_owned());
    }
    if let Some((workers, tries)) = &plateau {
        let tries: Vec<_> = tries.iter().map(|(n, rate)| format!("{n}: {rate:.0}/s")).collect();
        report.note(format!("limit: {workers} workers; creates by workers: {}", tries.join(", ")));
    }
    let about = about(options, &plateau);
    if options.json {
        println!("{:#}", report.json(about));
    } else {
        println!(
            "{}, {}",
            about["date"].as_str().unwrap_or(""),
            about["machine"].as_str().unwrap_or("")
        );
        print!("{}", report.table());
    }
    if complete { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// All runs; whether all could be measured.
async fn runs(options: &Options, plateau: &mut Plateau, report: &mut Report) -> bool {
    let (began, mut complete) = (Instant::now(), true);
    let step = |what: &str| say(began, &format!("  {what}"));
    for number in 0..options.runs {
        let first = number == 0;
        for run in options.plan(first) {
            say(began, &format!("run {} of {}: {run}", number + 1, options.runs));
            let measured = match run {
                Run::Agents(size, controllers) => {
                    scenario(options, size, controllers, first, plateau, report, &step).await
                }
                Run::Children(size) => children::scenario(options, size, report, &step).await,
                Run::Syncs(syncs, controllers) => {
                    many_syncs::scenario(options, syncs, controllers, report, &step).await
                }
            };
            if let Err(error) = measured {
                complete = false;
                say(began, &format!("FAILED: {run}: {error}"));
                report.note(format!("not measured to the end: {run}: {error}"));
            }
        }
    }
    complete
}

/// Ctrl-C and SIGTERM: what was measured until then is shown.
async fn interrupted() {
    let terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate());
    let Ok(mut terminate) = terminate else { return std::future::pending().await };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

/// One run: a control plane of its own, the limit, then the operator through every step that is wanted.
async fn scenario(
    options: &Options,
    size: usize,
    controllers: Controllers,
    first: bool,
    plateau: &mut Plateau,
    report: &mut Report,
    step: &dyn Fn(&str),
) -> Outcome<()> {
    let mut stage = Stage::start(options, Fleet::new(size, options), controllers).await?;
    stage.first = first;
    let creation = [Options::creation(size)];
    let mut limits = None;
    if options.wants(&["P1", "P1b", "P3", "P4"]) {
        step("the limit");
        if plateau.is_none() {
            let namespace = stage.cluster.namespace("plateau").await;
            stage.api.quiet(None).await?;
            *plateau = Some(stage.limit.plateau(Fleet::new(1000, options), &namespace).await?);
        }
        stage.workers = plateau.as_ref().map_or(16, |(workers, _)| *workers);
        let measured = limits::limits(&stage).await?;
        if options.wants(&creation) && limits::compares_kubectl(&stage) {
            step("kubectl");
            limits::kubectl(&stage, measured, report).await?;
        }
        limits = Some(measured);
    }
    step("the operator");
    let mut run = stage.begin().await?;
    whole::create(&mut run, limits.filter(|_| options.wants(&creation)), report).await?;
    if options.wants(&["P6"]) {
        whole::memory(&run, "peak after creation", report)?;
    }
    whole::same_manifests(&run.stage, &run.stage.namespace).await?;
    run.quiet().await?;
    if options.wants(&["P5"]) {
        step("nothing changed");
        change::nothing(&mut run, report).await?;
    }
    if options.wants(&["P2", "P7"]) {
        step("one file changed");
        change::one_file(&mut run, report).await?;
    }
    if controllers == Controllers::All {
        if first && options.wants(&["P9"]) {
            step("edits by hand");
            life::drift(&mut run, report).await?;
        }
        if first && options.wants(&["P11"]) {
            step("idle");
            life::idle(&mut run, report).await?;
        }
        if options.wants(&["P10"]) {
            step("restart");
            life::restart(&mut run, report).await?;
        }
    }
    if let Some(limits) = limits {
        if options.wants(&["P3"]) {
            step("all changed");
            whole::change(&mut run, limits, report).await?;
        }
        if options.wants(&["P4"]) {
            step("one in ten pruned");
            whole::prune(&mut run, limits, report).await?;
        }
    }
    Ok(())
}

fn say(began: Instant, text: &str) {
    eprintln!("{:>5} s  {text}", began.elapsed().as_secs());
}

/// On what and how it was measured.
fn about(options: &Options, plateau: &Plateau) -> Value {
    let field = |path: &str, name: &str| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_once(':').map_or("", |(_, value)| value).trim().to_owned()
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let (cpu, memory) = (field("/proc/cpuinfo", "model name"), field("/proc/meminfo", "MemTotal"));
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    json!({
        "date": jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string(),
        "machine": format!("{cores} cores ({cpu}), {memory}, load {}", load.split(' ').next().unwrap_or("?")),
        "measurements": options.ids,
        "sizes": options.sizes,
        "gitSyncs": options.syncs,
        "repositories": options.repositories,
        "runs": options.runs,
        "filesPerFolder": options.files_per_folder,
        "instructionsBytes": options.bytes,
        "quietSeconds": options.quiet.as_secs(),
        "limitWorkers": plateau.as_ref().map(|(workers, _)| workers),
    })
}
