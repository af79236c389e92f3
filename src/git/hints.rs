//! What people can do about the errors of Git.

use super::GitError;
use super::error::VERSIONED;
use super::ssh::HostKeyProblem;

/// What to do about a server's certificate that is wrong whoever signed it.
const WRONG_CERTIFICATE: &str =
    "whoever runs the server has to renew it; check the clock here, too";

/// Whether a certificate is refused because of who signed it. The texts begin with fixed words; names that the server shows come after them.
#[must_use]
pub fn is_of_authority(why: &str) -> bool {
    why.starts_with("no authority") || why.starts_with("it is self-signed")
}

impl GitError {
    /// What to do next, if that is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::InvalidUrl { .. } => {
                "use a URL like https://git.example.com/team/repository.git or ssh://git@git.example.com/team/repository.git"
            }
            Self::InsecureConnection { .. } => {
                "use https, or start the operator with --allow-insecure-git for tests"
            }
            Self::AddressRefused(refused) => refused.hint(),
            Self::InvalidRoots { .. } => {
                "ca.crt of the Secret is PEM: blocks that begin with BEGIN CERTIFICATE"
            }
            Self::CertificateNotTrusted { why } if is_of_authority(why) => {
                "put the authority that signed it into ca.crt of the Secret of spec.secretRef, or let the operator's machine trust it; what ca.crt has now, if anything, did not sign it"
            }
            Self::CertificateNotTrusted { why } if why.starts_with("it names no host") => {
                "whoever runs the server has to make it with the host in it: openssl req -addext subjectAltName=DNS:HOST"
            }
            Self::CertificateNotTrusted { why } if why.starts_with("it is for another host") => {
                "use a host in the URL that is in it, or let whoever runs the server make it for this one"
            }
            Self::CertificateNotTrusted { .. } => WRONG_CERTIFICATE,
            Self::ClientCertificateRefused { .. } => {
                "the client certificate is tls.crt and tls.key of the Secret of spec.secretRef"
            }
            Self::ConnectionFailed { detail } if detail.contains("InvalidContentType") => {
                "the server speaks no TLS at that port: check the port in the URL"
            }
            Self::ProxyFailed { hint, .. } => {
                return Some(format!(
                    "the proxy is that of the Secret of spec.proxySecretRef: {hint}"
                ));
            }
            Self::InvalidRef { .. } => {
                "name one branch or tag without refs/heads/, a full commit id, a full ref name (ref.name), or a range (ref.semver)"
            }
            Self::InvalidPath { .. } => {
                "use a folder relative to the root of the repository, such as ./prod"
            }
            Self::RefNotFound { name, other: Some(other), .. } => {
                return Some(format!("{name} is a {other}: name it in spec.ref.{other}"));
            }
            Self::RefNotFound { kind, there, .. } if *kind == VERSIONED => {
                return there.first().map(|tag| format!("the highest version there is {tag}"));
            }
            Self::RefNotFound { nearest, .. } | Self::PathMissing { nearest, .. }
                if !nearest.is_empty() =>
            {
                return Some(format!("did you mean {}?", nearest.join(", ")));
            }
            Self::PathMissing { .. } => {
                "nothing is deleted; if all of it is to go, commit the folder with a file like .gitkeep: then its deletes are held, and can be approved"
            }
            Self::RefNotFound { there, .. } if !there.is_empty() => {
                let are = if there.len() == 1 { "is" } else { "are" };
                return Some(format!("there {are} {}", there.join(", ")));
            }
            Self::RefNotFound { .. } => return None,
            Self::EmptyRepository => "push a first commit",
            Self::CommitRefused { .. } => {
                "follow a branch or tag, or set uploadpack.allowAnySHA1InWant on the server"
            }
            Self::PathNotAFolder { .. } => "name a folder; links are never followed",
            Self::AuthenticationFailed { given: false, .. } => {
                "name a Secret with credentials in spec.secretRef"
            }
            Self::AuthenticationFailed { status: 401, .. } => {
                "the Secret of spec.secretRef has a wrong or expired password or token"
            }
            Self::AuthenticationFailed { .. } => {
                "the user of the Secret of spec.secretRef may not read this repository"
            }
            Self::KeyRefused { .. } => {
                "let the account or the repository of the forge have the public key: ssh-keygen -y -f KEY prints it"
            }
            Self::HostKeyNotTrusted { problem: HostKeyProblem::Unknown, .. } => {
                "compare the fingerprint with what the server's owner publishes; then add the line that ssh-keyscan prints (with -p PORT, if it is not 22) to known_hosts of the Secret"
            }
            Self::HostKeyNotTrusted { .. } => {
                "somebody may stand between; if the server's owner says that the key is new, replace its lines in known_hosts of the Secret"
            }
            Self::CredentialsNeeded => {
                "name a Secret with identity and known_hosts in spec.secretRef"
            }
            Self::RepositoryRefused { .. } => {
                "check the path in the URL, and that the key may read the repository"
            }
            Self::NotVerified { why, .. } => why.hint(),
            Self::InvalidIdentity { .. } => {
                "tls.crt and tls.key are PEM: a certificate, and its key without a password"
            }
            Self::RepositoryNotFound { .. } => {
                "check the URL; many servers answer like this to private repositories, too"
            }
            Self::Redirected { .. } => "put the new address into the spec",
            Self::NotAGitServer { .. } => {
                "check that the URL is that of a repository, not of a web page"
            }
            Self::PackTooLarge { .. } => {
                "move large files to another repository, or raise the operator's --git-max-pack"
            }
            Self::AnswerTooLarge { .. } => "delete refs that nobody needs",
            Self::Timeout { .. } => "raise spec.timeout if the repository is large",
            Self::ServerFailed { status: 429 } => {
                "the server wants fewer requests: raise spec.interval, or give credentials"
            }
            Self::NotACommit { .. }
            | Self::CommitGone { .. }
            | Self::ServerFailed { .. }
            | Self::ConnectionFailed { .. }
            | Self::Silent { .. }
            | Self::Busy
            | Self::CorruptData { .. }
            | Self::StorageFailed { .. } => return None,
        };
        Some(text.to_owned())
    }
}
