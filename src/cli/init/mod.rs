//! `convoke init GITSYNC --url URL`: prints what a namespace needs so that it is synced from a repository, once the credentials were tried.

mod manifests;
mod secret;
mod trial;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args as ClapArgs;

use self::manifests::{Account, Given};
use self::secret::{SecretArgs, Values};
use self::trial::{Found, Trial};
use super::connection::{Connection, ConnectionArgs};
use super::{CLUSTER, Failure, USAGE, duration, print};
use crate::api::git_sync::GitRef;
use crate::git::{Credentials, NoCredentials};
use crate::net::{AddressRange, Dialler, Policy};
use convoke_core::text::is_dns_label;

/// Print what a namespace needs so that it is synced from a repository.
///
///     convoke init team --url https://git.example.com/team/agents.git -n team | kubectl apply --server-side -f -
///
/// First it asks the server for the ref and reads the commit, as the operator will. What is wrong is told with what to do, and nothing is
/// printed.
#[derive(Debug, ClapArgs)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Name of the GitSync
    name: String,
    /// URL of the repository: https://…, ssh://… or git@HOST:PATH
    #[arg(long, value_parser = repository)]
    url: String,
    #[command(flatten)]
    reference: RefArgs,
    /// Folder of the repository that holds the definitions
    #[arg(long, default_value = ".")]
    path: String,
    #[command(flatten)]
    secret: SecretArgs,
    /// ServiceAccount that writes what comes from Git
    #[arg(long, value_name = "NAME", default_value = "convoke-sync", value_parser = label)]
    service_account: String,
    /// The operator's ServiceAccount
    #[arg(long, value_name = "NAMESPACE/NAME", default_value = "convoke-system/convoke", value_parser = account)]
    operator: Account,
    /// The operator runs with --single-tenant: it needs no ServiceAccount to write, and dials private addresses
    #[arg(long)]
    single_tenant: bool,
    /// The operator runs with --allow-insecure-git
    #[arg(long)]
    allow_insecure_git: bool,
    /// What the operator's --allow-addresses says
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    allow_addresses: Vec<AddressRange>,
    /// Let the operator write keys of model proxies: it can then read all Secrets of the namespace. Needed for ModelAPIs in mode Proxy
    #[arg(long)]
    model_keys: bool,
    /// Let the operator create Secrets with the credentials of builds, and read logs. Needed for AgentBuilds of a private repository, for
    /// registries that ask for credentials, and to have the end of a failed build's log in the status
    #[arg(long)]
    builds: bool,
    /// How long one request may take
    #[arg(long, value_parser = duration, default_value = "60s")]
    timeout: Duration,
    /// Do not ask the server
    #[arg(long)]
    offline: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// What is followed.
#[derive(Debug, Clone, ClapArgs)]
#[group(multiple = false)]
struct RefArgs {
    /// Follow this branch [default: main]
    #[arg(long)]
    branch: Option<String>,
    /// Follow this tag
    #[arg(long)]
    tag: Option<String>,
    /// Follow the tag with the highest version in this range: '>=1.2, <2'
    #[arg(long, value_name = "RANGE")]
    semver: Option<String>,
    /// Follow this ref: refs/pull/420/head
    #[arg(long, value_name = "REF")]
    ref_name: Option<String>,
    /// Stay at this commit
    #[arg(long, value_name = "ID")]
    commit: Option<String>,
}

impl From<RefArgs> for GitRef {
    fn from(args: RefArgs) -> Self {
        let RefArgs { branch, tag, semver, ref_name: name, commit } = args;
        Self { branch, tag, semver, name, commit }
    }
}

/// A URL. The form `git@HOST:PATH`, in which forges show ssh URLs, becomes one.
#[allow(clippy::unnecessary_wraps)] // what clap asks for
fn repository(text: &str) -> Result<String, std::convert::Infallible> {
    let scp = text.split_once(':').filter(|(login, path)| {
        !path.is_empty() && !path.starts_with([':', '/']) && !login.contains('/')
    });
    let Some((login, path)) = scp else { return Ok(text.to_owned()) };
    match login.split_once('@') {
        Some((user, host)) if !user.is_empty() && !host.is_empty() => {
            Ok(format!("ssh://{login}/{path}"))
        }
        _ => Ok(text.to_owned()),
    }
}

/// Parses the name of an object.
fn label(text: &str) -> Result<String, String> {
    if is_dns_label(text) { Ok(text.to_owned()) } else { Err("it must be a DNS label".into()) }
}

/// Parses the operator's ServiceAccount.
fn account(text: &str) -> Result<Account, String> {
    let (namespace, name) = text.split_once('/').ok_or("it must be NAMESPACE/NAME")?;
    Ok(Account { namespace: label(namespace)?, name: label(name)? })
}

pub fn run(args: Args) -> Result<ExitCode, Failure> {
    // Requests run on its threads while the trial waits on another one.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::new(CLUSTER, format!("cannot start: {error}")))?;
    let result = runtime.block_on(init(args));
    // A request may still hang. It is not waited for.
    runtime.shutdown_background();
    result
}

async fn init(args: Args) -> Result<ExitCode, Failure> {
    if !is_dns_label(&args.name) {
        return Err(Failure::new(USAGE, "the name of a GitSync must be a DNS label")
            .hint("lower-case letters, digits and '-', at most 63"));
    }
    let namespace = namespace(&args).await?;
    let Values { secret, proxy } = args.secret.read()?;
    let has_secrets = !(secret.is_empty() && proxy.is_empty());
    if has_secrets && std::io::stdout().is_terminal() {
        let message = "the output has credentials, and this is a terminal";
        return Err(
            Failure::new(USAGE, message).hint("convoke init … | kubectl apply --server-side -f -")
        );
    }
    let refused = |NoCredentials { problem, hint }| {
        let failure = Failure::new(USAGE, format!("the credentials cannot be used: {problem}"));
        Failure { hint, ..failure }
    };
    if let Some(key) = secret.keys().find(|key| !Credentials::knows(key)) {
        let message = format!("{key} is no key of a Secret with credentials");
        let hint = format!("--from-file KEY=FILE, where KEY is one of {}", Credentials::keys());
        return Err(Failure::new(USAGE, message).hint(hint));
    }
    let mut credentials = Credentials::default();
    if !secret.is_empty() {
        credentials = Credentials::of(&secret, &args.url).map_err(refused)?;
    }
    if !proxy.is_empty() {
        let proxy = Credentials::proxy_of(&proxy).map_err(refused)?;
        credentials = credentials.with_proxy(proxy, &args.url).map_err(refused)?;
    }
    let reference = GitRef::from(args.reference.clone());
    let trial = Trial {
        url: &args.url,
        reference: &reference,
        path: &args.path,
        namespace: &namespace,
        timeout: args.timeout,
        dialler: Dialler::new(Policy {
            insecure: args.allow_insecure_git,
            single_tenant: args.single_tenant,
            ranges: args.allow_addresses.clone(),
            explains: true,
            ..Policy::default()
        }),
    };
    let found = trial.run(credentials, args.offline).await?;
    let given = Given {
        name: &args.name,
        namespace: &namespace,
        url: &args.url,
        reference: &reference,
        path: &args.path,
        service_account: (!args.single_tenant).then_some(args.service_account.as_str()),
        operator: &args.operator,
        secret: &secret,
        proxy: &proxy,
        model_keys: args.model_keys,
        builds: args.builds,
    };
    let text = manifests::render(&given)?;
    if args.connection.namespace.is_none() {
        eprintln!("namespace: {namespace} (-n names another one)");
    }
    if let Some(Found { text, has_model_proxy }) = found {
        eprint!("{text}");
        if has_model_proxy && !args.model_keys {
            eprintln!(
                "a ModelAPI has the mode Proxy: it gets no key before you give --model-keys, which opens all Secrets of the namespace to the operator"
            );
        }
    }
    print(&text)
}

/// The namespace of the arguments or of the context.
async fn namespace(args: &Args) -> Result<String, Failure> {
    let namespace = if let Some(namespace) = &args.connection.namespace {
        namespace.clone()
    } else {
        let connection = Connection::open(&args.connection).await;
        connection.map_err(|failure| failure.hint("name the namespace with -n"))?.namespace
    };
    if is_dns_label(&namespace) {
        return Ok(namespace);
    }
    Err(Failure::new(USAGE, "the name of a namespace must be a DNS label"))
}

#[cfg(test)]
mod tests {
    use super::repository;

    #[test]
    fn d7_the_ssh_form_of_forges_becomes_a_url() {
        let is = |text: &str| repository(text).unwrap_or_else(|never| match never {});
        assert_eq!(is("git@github.com:team/agents.git"), "ssh://git@github.com/team/agents.git");
        for same in [
            "https://git.example.com:8443/a.git",
            "ssh://git@git.example.com:22/a.git",
            "https://user@git.example.com/a.git",
            "ext::sh -c x@y:z",
            "git@host:/srv/a.git",
            "@host:a",
            "a",
            "",
        ] {
            assert_eq!(is(same), same);
        }
    }
}
