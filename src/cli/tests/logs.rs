use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Parser;
use futures::io::Cursor;
use serde_json::{Value, json};

use super::super::pods::tests::{PODS, agent, connection, connection_by, pod, workload};
use super::super::terminal::tests::{Unread, screen};
use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

fn args(line: &[&str]) -> Args {
    let words = ["logs", "agent/a"].iter().chain(line);
    Line::parse_from(words).args
}

/// The lines of a log.
async fn lines(log: &[u8]) -> Vec<Vec<u8>> {
    let mut lines = Lines::new(Cursor::new(log.to_vec()));
    let mut found = Vec::new();
    while let Some(line) = lines.next().await.expect("a log") {
        found.push(line);
    }
    found
}

#[tokio::test]
async fn d6_lines_of_any_length_are_given_whole_or_in_pieces() {
    assert_eq!(lines(b"").await, Vec::<Vec<u8>>::new());
    assert_eq!(lines(b"a\n\nb\r\nc").await, [b"a\n".as_slice(), b"\n", b"b\r\n", b"c"]);
    let long = [vec![b'x'; MAX_LINE_BYTES + 5], b"\ny\n".to_vec()].concat();
    let found = lines(&long).await;
    let lengths: Vec<_> = found.iter().map(Vec::len).collect();
    assert_eq!((lengths, found.concat()), (vec![MAX_LINE_BYTES, 6, 2], long));
}

#[test]
fn d6_what_is_asked_of_a_log_follows_the_arguments() {
    let args = args(&["-f", "--tail", "10", "--since", "90s", "-c", "helper"]);
    let source = Source { pod: "one".into(), container: Some("helper".into()), run: None };
    let params = params(&args, &source);
    assert_eq!(
        (params.container.as_deref(), params.follow, params.tail_lines, params.since_seconds),
        (Some("helper"), true, Some(10), Some(90))
    );
    assert_eq!(seconds(Duration::from_millis(1)), 1);
    assert_eq!(seconds(Duration::from_millis(2001)), 3);
    for wrong in
        [&["--since", "0s"][..], &["--since", "soon"], &["--tail", "-1"], &["-f", "--previous"]]
    {
        let words = ["logs", "agent/a"].iter().chain(wrong);
        assert!(Line::try_parse_from(words).is_err(), "{wrong:?}");
    }
}

#[test]
fn d6_the_container_is_the_wanted_the_annotated_or_the_first_one() {
    let of = |object: &Value, line: &[&str]| {
        let pod: Pod = serde_json::from_value(object.clone()).expect("a pod");
        let source = Source::of(&pod, &args(line));
        (source.container.unwrap_or_default(), source.run)
    };
    let mut object = pod("one", ("set", "set"));
    assert_eq!(of(&object, &[]), ("agent".into(), Some("c1".into())));
    assert_eq!(of(&object, &["-c", "other"]), ("other".into(), None));
    object["metadata"]["annotations"] =
        json!({"kubectl.kubernetes.io/default-container": "helper"});
    assert_eq!(of(&object, &[]), ("helper".into(), None));
    object["metadata"]["annotations"] =
        json!({"kubectl.kubernetes.io/default-container": "none such"});
    assert_eq!(of(&object, &[]), ("agent".into(), Some("c1".into())));
}

/// The log of Agent `a` with these pods and logs, as a terminal or a pipe shows it.
async fn shown(logs: &[(&str, Value)], is_terminal: bool) -> (Vec<u8>, String) {
    let objects: Vec<_> = logs.iter().map(|(name, _)| pod(name, ("set", "set"))).collect();
    let paths: Vec<_> =
        logs.iter().map(|(name, _)| format!("/api/v1/namespaces/team/pods/{name}/log")).collect();
    let mut all: Vec<(&str, Value)> = agent(&objects);
    all.extend(paths.iter().map(String::as_str).zip(logs.iter().map(|(_, log)| log.clone())));
    let (connection, workload, args) = (connection(&all), workload(), args(&[]));
    let (mut screen, out, err) = screen(is_terminal);
    let found =
        Pods::of(&connection, &workload).await.expect("an agent").list().await.expect("pods");
    for pod in &found {
        let source = Source::of(pod, &args);
        copy(&connection, &source, &args, found.len() > 1, &mut screen).await.expect("a log");
    }
    (out.bytes(), err.text())
}

#[tokio::test]
async fn d6_lines_of_several_pods_say_whose_they_are_and_only_terminals_are_spared_of_bytes() {
    let log = json!("a\u{1b}[31m\nb");
    assert_eq!(shown(&[("one", log.clone())], false).await.0, b"a\x1b[31m\nb");
    assert_eq!(shown(&[("one", log.clone())], true).await.0, b"a [31m\nb\n");
    let (out, err) =
        shown(&[("one", log.clone()), ("two", json!(400)), ("zoe", json!("c\n"))], false).await;
    assert_eq!(out, b"[one] a\x1b[31m\n[one] b\n[zoe] c\n");
    assert_eq!(err, "two: no\n");
}

#[tokio::test]
async fn d6_followed_logs_are_taken_up_once_for_each_run_of_a_container() {
    let answers = agent(&[]);
    let log = [("/api/v1/namespaces/team/pods/one/log", json!("a\n"))];
    let connection = connection(&[&answers[..], &log[..]].concat());
    let args = args(&["-f"]);
    let mut follower = Follower::new(&args, &connection);
    let (sender, mut news) = mpsc::channel(MAX_WAITING);
    let (mut screen, out, _) = screen(false);
    let mut object = pod("one", ("set", "set"));
    // The same run three times, then another one, and a pod whose container does not run yet.
    for run in ["c1", "c1", "c1", "c2"] {
        object["status"]["containerStatuses"][0]["containerID"] = run.into();
        let mut waiting = pod("two", ("set", "set"));
        waiting["status"] = json!({});
        let pods: Vec<Pod> = serde_json::from_value(json!([object, waiting])).expect("pods");
        follower.look(&pods, false, &sender);
        while follower.tasks.join_next().await.is_some() {}
        while let Ok(one) = news.try_recv() {
            follower.hear(one, &mut screen).expect("shown");
        }
    }
    assert_eq!(out.text(), "a\na\n");
    assert!(follower.progress.values().all(|progress| *progress == Progress::Done));
}

/// Follows Agent `a`, whose pods are these from look to look; more looks are refused. A number is the code of a refusal.
async fn followed(looks: Vec<Value>, screen: &mut Screen) -> Result<ExitCode, Failure> {
    let answers = agent(&[]).into_iter();
    let answers: HashMap<&str, Value> = answers.filter(|(path, _)| *path != PODS).collect();
    let looked = AtomicUsize::new(0);
    let connection = connection_by(move |path| match answers.get(path) {
        Some(answer) => answer.clone(),
        None if path == PODS => {
            let look = looks.get(looked.fetch_add(1, Ordering::Relaxed));
            match look.cloned().unwrap_or_else(|| json!(403)) {
                Value::Array(pods) => json!({"metadata": {}, "items": pods}),
                refusal => refusal,
            }
        }
        None => json!(format!("{path}\n")),
    });
    let (workload, args) = (workload(), args(&["-f"]));
    let mut pods = Pods::of(&connection, &workload).await.expect("an agent");
    Follower::new(&args, &connection).run(&mut pods, screen).await
}

#[tokio::test(start_paused = true)]
async fn d6_followed_logs_go_on_while_the_pods_cannot_be_listed() {
    let [one, two] = ["one", "two"].map(|name| pod(name, ("set", "set")));
    let looks = vec![json!([one]), json!(503), json!(503), json!([one, two]), json!(500)];
    let (mut shown, out, err) = screen(false);
    let ended = followed(looks, &mut shown).await.expect_err("a refusal");
    assert!(ended.message.contains("cannot list pods in team"), "{}", ended.message);
    let log = "/api/v1/namespaces/team/pods";
    assert_eq!(out.text(), format!("{log}/one/log\n[two] {log}/two/log\n"));
    assert_eq!(err.text().matches("trying again").count(), 2, "once for each time: {}", err.text());
    // The first look tells at once what is wrong.
    let ended = followed(vec![json!(503)], &mut shown).await.expect_err("a refusal");
    assert!(ended.may_pass);
}

#[tokio::test(start_paused = true)]
async fn d6_followed_logs_end_with_whoever_reads_them() {
    let one = pod("one", ("set", "set"));
    let (_, _, err) = screen(false);
    let mut unread = Screen::of(Box::new(Unread), Box::new(err), false, false);
    let ended = followed(vec![json!([one]); 100], &mut unread).await;
    assert_eq!(ended.expect("no failure"), ExitCode::SUCCESS);
}
