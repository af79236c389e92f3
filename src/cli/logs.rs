//! `convoke logs agent/NAME`: the logs of all pods of an agent, a model API or a tool server.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args as ClapArgs;
use futures::{AsyncRead, AsyncReadExt};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::LogParams;
use tokio::sync::mpsc::{self, Sender};
use tokio::task::JoinSet;

use super::connection::{Connection, ConnectionArgs, block_on};
use super::pods::{Pods, Workload, refused};
use super::terminal::Screen;
use super::{CLUSTER, Failure, USAGE, builds, duration};
use crate::cluster::client::{CallError, call};

/// How often new pods and new containers are looked for.
pub(super) const LOOK: Duration = Duration::from_secs(2);
/// Bytes of a line that are written together. A longer one is written in pieces.
const MAX_LINE_BYTES: usize = 256 << 10;
/// Lines that wait to be written.
const MAX_WAITING: usize = 256;
/// The annotation that names the container whose log is wanted.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// Show the logs of pods.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Whose pods: agent/NAME, modelapi/NAME or mcpserver/NAME; of build/NAME it is the newest build
    object: String,
    /// Go on with what is logged from now on, also by new pods
    #[arg(short, long, conflicts_with = "previous")]
    follow: bool,
    /// Only the last lines of each pod
    #[arg(long, value_name = "N")]
    tail: Option<u32>,
    /// Only what was logged in the last time, such as 10m
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    since: Option<Duration>,
    /// Container [default: the one that does the work], or step of a build [default: all]
    #[arg(short, long)]
    container: Option<String>,
    /// The log of the container that ran before, which tells why it ended
    #[arg(long)]
    previous: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    if let Some(name) = builds::name_of(&args.object) {
        let name = name?;
        if args.previous {
            return Err(Failure::new(
                USAGE,
                "steps of a build run once: --previous has no meaning",
            ));
        }
        return block_on(show_build(args, name));
    }
    let workload = Workload::parse(&args.object, None)?;
    block_on(show(args, &workload))
}

async fn show(args: &Args, workload: &Workload) -> Result<ExitCode, Failure> {
    let connection = Connection::open(&args.connection).await?;
    let mut pods = Pods::of(&connection, workload).await?;
    let mut screen = Screen::new();
    if args.follow {
        return Follower::new(args, &connection).run(&mut pods, &mut screen).await;
    }
    let found = pods.list().await?;
    if found.is_empty() {
        return Err(pods.none("pods"));
    }
    let several = found.len() > 1;
    for pod in &found {
        copy(&connection, &Source::of(pod, args), args, several, &mut screen).await?;
        if screen.is_unread() {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn show_build(args: &Args, name: &str) -> Result<ExitCode, Failure> {
    let connection = Connection::open(&args.connection).await?;
    let params = LogParams {
        follow: args.follow,
        since_seconds: args.since.map(seconds),
        tail_lines: args.tail.map(i64::from),
        ..LogParams::default()
    };
    let wanted = builds::Wanted { name, step: args.container.as_deref(), params };
    builds::show_logs(&connection, &wanted, &mut Screen::new()).await
}

/// The pods of a namespace.
fn api_of(connection: &Connection) -> Api<Pod> {
    Api::namespaced(connection.client.clone(), &connection.namespace)
}

/// A container whose log is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Source {
    pod: String,
    /// The container, by name.
    container: Option<String>,
    /// Which of the containers that ran under this name: another one after each restart. `None` before the first one.
    run: Option<String>,
}

impl Source {
    fn of(pod: &Pod, args: &Args) -> Self {
        let containers =
            pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default();
        let annotations = pod.metadata.annotations.as_ref();
        let named = annotations.and_then(|all| all.get(DEFAULT_CONTAINER));
        let named = named.filter(|name| containers.iter().any(|one| one.name == **name)).cloned();
        // The operator's own container is the first one.
        let first = || containers.first().map(|one| one.name.clone());
        let container = args.container.clone().or(named).or_else(first);
        let statuses = pod.status.iter().flat_map(|status| {
            let all = status.container_statuses.iter().chain(&status.init_container_statuses);
            all.flatten()
        });
        let mut statuses = statuses.filter(|status| Some(&status.name) == container.as_ref());
        let run = statuses.next().and_then(|status| status.container_id.clone());
        Self { pod: pod.metadata.name.clone().unwrap_or_default(), container, run }
    }
}

/// What is asked of a log.
fn params(args: &Args, source: &Source) -> LogParams {
    LogParams {
        container: source.container.clone(),
        follow: args.follow,
        previous: args.previous,
        since_seconds: args.since.map(seconds),
        tail_lines: args.tail.map(i64::from),
        ..LogParams::default()
    }
}

/// Whole seconds, and at least one: the API server takes no others.
fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis().div_ceil(1000)).unwrap_or(i64::MAX).max(1)
}

/// Writes a log to its end. With `several` pods, each line says whose it is.
async fn copy(
    connection: &Connection,
    source: &Source,
    args: &Args,
    several: bool,
    screen: &mut Screen,
) -> Result<(), Failure> {
    let label = several.then_some(source.pod.as_str());
    let log = match call(api_of(connection).log_stream(&source.pod, &params(args, source))).await {
        Ok(log) => log,
        // The pod has ended since it was listed, or its container has not begun: the others may say more.
        Err(error) if error.is_gone() || (error.is_invalid() && several) => {
            return screen.note(&format!("{}: {error}", source.pod));
        }
        Err(error) => return Err(failure(connection, &source.pod, &error)),
    };
    let mut lines = Lines::new(log);
    while let Some(line) = lines.next().await.map_err(|why| broken(&source.pod, &why))? {
        write(screen, label, &line)?;
        if screen.is_unread() {
            return Ok(());
        }
    }
    screen.end_line()
}

/// The failure of a request for a log.
pub(super) fn failure(connection: &Connection, pod: &str, error: &CallError) -> Failure {
    if error.is_invalid() {
        // The API server says which containers there are, or that this one has not begun.
        return Failure::new(CLUSTER, format!("there is no log of pod {pod}: {error}")).hint(
            "name a container with -c, or see what the pod waits for with kubectl describe pod",
        );
    }
    refused(connection, "get", "pods/log", error)
}

pub(super) fn broken(pod: &str, why: &std::io::Error) -> Failure {
    Failure::new(CLUSTER, format!("the log of pod {pod} broke off: {why}"))
}

/// Writes a line, or a piece of a long one, behind the name of its pod. A pipe gets the bytes as they are.
pub(super) fn write(screen: &mut Screen, label: Option<&str>, line: &[u8]) -> Result<(), Failure> {
    match label {
        None => screen.bytes(line),
        Some(pod) => {
            let end: &[u8] = if line.ends_with(b"\n") { b"" } else { b"\n" };
            screen.bytes(&[b"[".as_slice(), pod.as_bytes(), b"] ", line, end].concat())
        }
    }
}

/// Splits a log into lines, with their ends, of a bounded length.
pub(super) struct Lines<R> {
    log: R,
    buffer: Vec<u8>,
    /// Bytes of the buffer that were given already.
    given: usize,
    is_done: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(log: R) -> Self {
        Self { log, buffer: Vec::new(), given: 0, is_done: false }
    }

    /// The next line; `None` at the end of the log.
    pub(super) async fn next(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        loop {
            let rest = &self.buffer[self.given..];
            let end = rest.iter().position(|&byte| byte == b'\n').map(|at| at + 1);
            let long = (rest.len() >= MAX_LINE_BYTES).then_some(MAX_LINE_BYTES);
            let last = (self.is_done && !rest.is_empty()).then_some(rest.len());
            let whole = end.filter(|&end| end <= MAX_LINE_BYTES).or(long).or(last);
            if let Some(length) = whole {
                let line = rest[..length].to_vec();
                self.given += length;
                return Ok(Some(line));
            }
            if self.is_done {
                return Ok(None);
            }
            self.buffer.drain(..self.given);
            self.given = 0;
            let mut bytes = vec![0; 16 << 10];
            let read = self.log.read(&mut bytes).await?;
            self.is_done = read == 0;
            self.buffer.extend_from_slice(&bytes[..read]);
        }
    }
}

/// What a pod's log says while it is followed.
enum News {
    Line {
        pod: String,
        line: Vec<u8>,
    },
    /// The log has ended, or it could not be read.
    End {
        source: Source,
        why: Option<Ended>,
    },
}

/// Why a log that was followed has no more lines.
enum Ended {
    /// The request was refused, or nobody was reached.
    Refused(CallError),
    /// The connection broke.
    Broken(std::io::Error),
}

/// How far a container's log was followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// It is being followed.
    Running,
    /// The connection broke at this moment.
    Broke(Instant),
    /// It has been read to its end.
    Done,
}

/// Follows the logs of all pods, also of new ones.
struct Follower<'a> {
    args: &'a Args,
    connection: &'a Connection,
    api: Api<Pod>,
    /// By pod, and by the container that ran.
    progress: BTreeMap<(String, Option<String>), Progress>,
    /// Pods that were seen. With more than one, each line says whose it is.
    pods: BTreeSet<String>,
    tasks: JoinSet<()>,
}

impl<'a> Follower<'a> {
    fn new(args: &'a Args, connection: &'a Connection) -> Self {
        let api = api_of(connection);
        let (progress, pods, tasks) = (BTreeMap::new(), BTreeSet::new(), JoinSet::new());
        Self { args, connection, api, progress, pods, tasks }
    }

    /// Follows until the command is ended, or nobody reads what it shows. A list of the pods that fails is tried again: the logs go on
    /// meanwhile.
    async fn run(mut self, pods: &mut Pods<'_>, screen: &mut Screen) -> Result<ExitCode, Failure> {
        let (sender, mut news) = mpsc::channel(MAX_WAITING);
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut is_first, mut fails) = (true, false);
        while !screen.is_unread() {
            tokio::select! {
                Some(news) = news.recv() => self.hear(news, screen)?,
                _ = look.tick() => {
                    let found = match pods.list().await {
                        Ok(found) => found,
                        Err(failure) if is_first || !failure.may_pass => return Err(failure),
                        Err(failure) => {
                            if !fails {
                                screen.note(&format!("{}; trying again", failure.message))?;
                            }
                            fails = true;
                            continue;
                        }
                    };
                    fails = false;
                    if is_first && found.is_empty() {
                        screen.note(&format!("{}: waiting for one", pods.none("pods").message))?;
                    }
                    self.look(&found, is_first, &sender);
                    is_first = false;
                    while self.tasks.try_join_next().is_some() {}
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Begins to follow what is new among these pods.
    fn look(&mut self, found: &[Pod], is_first: bool, sender: &Sender<News>) {
        for pod in found {
            let source = Source::of(pod, self.args);
            // There is no log before the container runs.
            if source.run.is_none() {
                continue;
            }
            self.pods.insert(source.pod.clone());
            let key = (source.pod.clone(), source.run.clone());
            let mut params = params(self.args, &source);
            match self.progress.get(&key) {
                Some(Progress::Running | Progress::Done) => continue,
                Some(Progress::Broke(at)) => {
                    params.tail_lines = None;
                    params.since_seconds = Some(seconds(at.elapsed()));
                }
                // What a pod says that is new since the command began is shown from its first line.
                None if !is_first => (params.tail_lines, params.since_seconds) = (None, None),
                None => {}
            }
            self.progress.insert(key, Progress::Running);
            self.tasks.spawn(follow(self.api.clone(), source, params, sender.clone()));
        }
        let there: BTreeSet<_> =
            found.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect();
        self.progress.retain(|(pod, _), progress| {
            *progress == Progress::Running || there.contains(pod.as_str())
        });
    }

    fn hear(&mut self, news: News, screen: &mut Screen) -> Result<(), Failure> {
        match news {
            News::Line { pod, line } => {
                let label = (self.pods.len() > 1).then_some(pod.as_str());
                write(screen, label, &line)
            }
            News::End { source, why } => {
                let key = (source.pod.clone(), source.run.clone());
                let progress = match why {
                    None => Progress::Done,
                    Some(Ended::Refused(error))
                        if error.is_forbidden() || error.is_unauthorized() =>
                    {
                        return Err(failure(self.connection, &source.pod, &error));
                    }
                    // A container that is there no more has another one, or none, in the next look.
                    Some(Ended::Refused(error)) if error.is_gone() || error.is_invalid() => {
                        screen.note(&format!("{}: {error}", source.pod))?;
                        Progress::Done
                    }
                    Some(Ended::Refused(error)) => {
                        screen.note(&format!("{}: {error}; trying again", source.pod))?;
                        Progress::Broke(Instant::now())
                    }
                    Some(Ended::Broken(error)) => {
                        screen.note(&format!(
                            "{}: the log broke off: {error}; going on",
                            source.pod
                        ))?;
                        Progress::Broke(Instant::now())
                    }
                };
                self.progress.insert(key, progress);
                Ok(())
            }
        }
    }
}

/// Follows the log of one container to its end. Nobody to hear of it is the end, too.
async fn follow(api: Api<Pod>, source: Source, params: LogParams, sender: Sender<News>) {
    let why = match call(api.log_stream(&source.pod, &params)).await {
        Ok(log) => {
            let mut lines = Lines::new(log);
            loop {
                match lines.next().await {
                    Ok(Some(line)) => {
                        let pod = source.pod.clone();
                        if sender.send(News::Line { pod, line }).await.is_err() {
                            return;
                        }
                    }
                    Ok(None) => break None,
                    Err(error) => break Some(Ended::Broken(error)),
                }
            }
        }
        Err(error) => Some(Ended::Refused(error)),
    };
    let _ = sender.send(News::End { source, why }).await;
}

#[cfg(test)]
#[path = "tests/logs.rs"]
mod tests;
