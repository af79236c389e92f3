//! What `convoke init` prints without a server.

use super::*;

const URL: &str = "https://git.example.com/team/agents.git";

#[test]
fn d7_offline_nothing_is_asked_and_all_is_printed() {
    let run = convoke(&[
        "init",
        "news",
        "-n",
        "team",
        "--url",
        URL,
        "--semver",
        "^1",
        "--path",
        "prod",
        "--offline",
    ]);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    let sync = run.out.rsplit("---\n").next().expect("a document");
    insta::assert_snapshot!(sync, @r#"
    apiVersion: convoke.dev/v1alpha1
    kind: GitSync
    metadata:
      name: news
      namespace: team
    spec:
      path: prod
      ref:
        semver: ^1
      serviceAccountName: convoke-sync
      url: https://git.example.com/team/agents.git
    "#);
}

#[test]
fn d7_credentials_are_not_printed_on_a_terminal() {
    const TERMINAL: &str =
        "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
    let folder = folder(&[("token", "canary-token\n")]);
    let file = folder.path().join("token").display().to_string();
    let arguments =
        ["init", "news", "-n", "team", "--url", URL, "--offline", "--from-file", file.as_str()];
    let piped = convoke(&arguments);
    // "canary-token" in base64, without the line break.
    assert!(piped.out.contains("token: Y2FuYXJ5LXRva2Vu\n"), "{}", piped.out);
    let output = Command::new("python3")
        .args(["-c", TERMINAL, env!("CARGO_BIN_EXE_convoke")])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("python3");
    let shown = String::from_utf8(output.stdout).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{shown}");
    insta::assert_snapshot!(shown.replace('\r', ""), @r#"
    error: the output has credentials, and this is a terminal
    hint: convoke init … | kubectl apply --server-side -f -
    "#);
}

#[test]
fn d7_what_is_wrong_is_told_before_a_server_is_asked() {
    let told = |more: &[&str]| {
        let run = convoke(&[&["init", "news", "-n", "team"][..], more].concat());
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{}", run.err);
        run.err
    };
    insta::assert_snapshot!(told(&["--url", "https://u:canary@git.example.com/a"]), @r#"
    error: the repository URL is refused: it holds a user name or password
    hint: use a URL like https://git.example.com/team/repository.git or ssh://git@git.example.com/team/repository.git
    "#);
    insta::assert_snapshot!(told(&["--url", "http://git.example.com/a"]), @r#"
    error: plain http is not allowed
    hint: use https; --allow-insecure-git says that the operator runs with that flag, too
    "#);
    insta::assert_snapshot!(told(&["--url", "https://169.254.169.254/a"]), @r#"
    error: 169.254.169.254 may not be dialled: its address is link-local
    hint: such addresses are never dialled
    "#);
    insta::assert_snapshot!(told(&["--url", "git@git.example.com:team/agents.git"]), @r#"
    error: an ssh:// URL needs credentials
    hint: give a private key and the keys of the server: --from-file identity=FILE --from-file known_hosts=FILE
    "#);
    insta::assert_snapshot!(told(&["--url", URL, "--path", "../x"]), @r#"
    error: the path "../x" is refused: a name is empty, . or ..
    hint: use a folder relative to the root of the repository, such as ./prod
    "#);
    insta::assert_snapshot!(told(&["--url", URL, "--semver", "one"]), @r#"
    error: the ref "one" is refused: it is no range of versions: unexpected character 'o' while parsing major version number
    hint: name one branch or tag without refs/heads/, a full commit id, a full ref name (ref.name), or a range (ref.semver)
    "#);
    insta::assert_snapshot!(told(&["--url", URL, "--from-literal", "token=canary"]), @r#"
    error: token on a command line is seen by everybody on this machine
    hint: --from-file token=FILE, or token=- for standard input
    "#);
    insta::assert_snapshot!(told(&["--url", URL, "--from-file", "token=/nowhere"]), @r#"
    error: token=FILE: No such file or directory (os error 2)
    hint: FILE is the name of a file, or - for standard input; it is not the value
    "#);
    insta::assert_snapshot!(told(&["--url", URL, "--proxy-from-literal", "username=u"]), @r#"
    error: the credentials cannot be used: it has no address
    hint: address is http://HOST:PORT; username and password are keys of their own
    "#);
}
