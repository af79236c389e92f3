//! Files that are attached to an image: B5.

use std::os::unix::fs::symlink;

use super::server::{Registry, Settings};
use super::stand_in::{Answer, Asked, StandIn};
use super::*;

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const SPDX: &str = "application/spdx+json";

/// A folder with a file, and the argument that attaches it.
fn file(content: &[u8]) -> (TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("sbom.spdx.json");
    std::fs::write(&path, content).expect("a file");
    let argument = format!("{}={SPDX}", path.display());
    (folder, argument)
}

/// What a registry has for a path below the image.
async fn get(registry: &Registry, path: &str) -> Option<Vec<u8>> {
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let url = format!("http://{}/v2/team/app/{path}", registry.host());
    let accept = format!("{MANIFEST}, {INDEX}");
    let answer = client.get(url).header("accept", accept).send().await.expect("an answer");
    let is_there = answer.status().is_success();
    let bytes = answer.bytes().await.expect("a body").to_vec();
    is_there.then_some(bytes)
}

async fn json_of(registry: &Registry, path: &str) -> Value {
    serde_json::from_slice(&get(registry, path).await.expect(path)).expect("JSON")
}

/// The tag of the list of what belongs to an image.
fn list_tag(layout: &Layout) -> String {
    layout.digest().replace(':', "-")
}

fn puts(requests: &[String]) -> Vec<String> {
    let puts = requests.iter().filter(|one| one.starts_with("PUT") && one.contains("/manifests/"));
    puts.map(|one| one.split_once("/manifests/").expect("a path").1.to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn b5_a_file_is_attached_before_a_tag_names_the_image() {
    let Some(registry) = Registry::start(&Settings { password: true, ..Settings::default() })
    else {
        return;
    };
    let layout = Layout::usual("x");
    let image = format!("{}/team/app", registry.host());
    let folder = password(&registry.host(), PASSWORD);
    let (results, argument) = file(b"{\"spdxVersion\": \"SPDX-2.3\"}");
    let attached = results.path().join("attached");
    let more = ["--tag", "a", "--tag", "b", "--insecure", "true", "--auth", text(folder.path())];
    let with = ["--attach", &argument, "--attached-file", text(&attached)];
    let run = push(layout.dir.path(), &image, &[&more[..], &with].concat());
    assert_eq!((run.code, run.err.as_str()), (0, ""), "{run:?}\n{}", registry.log());
    let artifact = std::fs::read_to_string(&attached).expect("a digest");
    assert!(
        run.out.starts_with(&format!("attached sbom.spdx.json, {artifact}\npushed ")),
        "{run:?}"
    );
    let requests = registry.requests();
    let order: Vec<_> = puts(&requests)
        .iter()
        .map(|one| one.split(' ').next().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(order, [&layout.digest(), &artifact, &list_tag(&layout), "a", "b"], "{requests:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b5_the_list_of_what_belongs_to_an_image_keeps_what_others_have_written() {
    let Some(registry) = Registry::start(&Settings::default()) else { return };
    let layout = Layout::usual("x");
    let image = format!("{}/team/app", registry.host());
    let list = format!("manifests/{}", list_tag(&layout));
    let more = ["--tag", "a", "--insecure", "true"];
    let attach = |argument: &str| {
        push(layout.dir.path(), &image, &[&more[..], &["--attach", argument]].concat())
    };
    assert_eq!(push(layout.dir.path(), &image, &more).code, 0);
    assert_eq!(get(&registry, &list).await, None, "without an attachment there is no list");

    let (_one, one) = file(b"one");
    let run = attach(&one);
    assert_eq!(run.code, 0, "{run:?}\n{}", registry.log());
    let first = json_of(&registry, &list).await;
    let entries = first["manifests"].as_array().expect("a list");
    assert_eq!((entries.len(), &entries[0]["artifactType"]), (1, &json!(SPDX)), "{first}");
    let artifact = entries[0]["digest"].as_str().expect("a digest");
    let manifest = json_of(&registry, &format!("manifests/{artifact}")).await;
    assert_eq!(manifest["subject"]["digest"], layout.digest());
    assert_eq!(manifest["artifactType"], SPDX);
    let blob = manifest["layers"][0]["digest"].as_str().expect("a digest");
    assert_eq!(get(&registry, &format!("blobs/{blob}")).await, Some(b"one".to_vec()));

    // Somebody else adds to the list what is not known here.
    let mut theirs = first.clone();
    theirs["annotations"] = json!({"by": "somebody"});
    theirs["manifests"][0]["annotations"] = json!({"a": "b"});
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let url = format!("http://{}/v2/team/app/{list}", registry.host());
    let put = client.put(&url).header("content-type", INDEX).body(theirs.to_string());
    assert!(put.send().await.expect("an answer").status().is_success());
    let (_two, two) = file(b"two");
    assert_eq!(attach(&two).code, 0);
    let second = json_of(&registry, &list).await;
    assert_eq!(second["annotations"], theirs["annotations"]);
    assert_eq!(second["manifests"][0], theirs["manifests"][0]);
    assert_eq!(second["manifests"].as_array().map(Vec::len), Some(2));

    // The same again is there, and nothing is written to the list.
    let before = puts(&registry.requests()).iter().filter(|one| one.starts_with("sha256-")).count();
    assert_eq!(attach(&one).code, 0);
    let after = puts(&registry.requests()).iter().filter(|one| one.starts_with("sha256-")).count();
    assert_eq!((before, after), (3, 3));
    assert_eq!(json_of(&registry, &list).await, second);
}

#[tokio::test(flavor = "multi_thread")]
async fn b5_what_is_no_list_is_not_written_over() {
    let Some(registry) = Registry::start(&Settings::default()) else { return };
    let layout = Layout::usual("x");
    let other = Layout::usual("other");
    let image = format!("{}/team/app", registry.host());
    let tag = list_tag(&layout);
    let run = push(other.dir.path(), &image, &["--tag", &tag, "--insecure", "true"]);
    assert_eq!(run.code, 0, "{run:?}");
    let (_folder, argument) = file(b"one");
    let more = ["--tag", "a", "--insecure", "true", "--attach", &argument];
    let run = push(layout.dir.path(), &image, &more);
    assert_eq!(run.code, 31, "{run:?}");
    let said =
        format!("the tag {tag} has something that is not written over: it is no image index");
    assert!(run.err.contains(&said), "{run:?}");
    let there = get(&registry, &format!("manifests/{tag}")).await.expect("it");
    assert_eq!(digest(&there), other.digest());
    assert_eq!(get(&registry, "manifests/a").await, None, "no tag names the image");
}

#[test]
fn b5_a_file_that_is_not_plain_is_not_attached_and_nothing_is_sent() {
    let Some(registry) = Registry::start(&Settings::default()) else { return };
    let layout = Layout::usual("x");
    let image = format!("{}/team/app", registry.host());
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("plain"), "plain").expect("a file");
    symlink(at("plain"), at("link")).expect("a link");
    std::fs::write(at("empty"), "").expect("a file");
    std::fs::create_dir(at("folder")).expect("a folder");
    let large = std::fs::File::create(at("large")).expect("a file");
    large.set_len((32 << 20) + 1).expect("its length");
    let made = Command::new("mkfifo").arg(at("pipe")).status().expect("mkfifo");
    assert!(made.success());
    for (name, said) in [
        ("link", "link is a symbolic link, and none is followed"),
        ("empty", "empty: it is empty"),
        ("folder", "folder is no regular file"),
        ("large", "large is larger than 32 MiB"),
        ("pipe", "pipe is no regular file"),
        ("none", "none cannot be read: there is no such thing"),
    ] {
        let argument = format!("{}={SPDX}", at(name).display());
        let more = ["--tag", "a", "--insecure", "true", "--attach", &argument];
        let run = push(layout.dir.path(), &image, &more);
        assert_eq!(run.code, 33, "{name}: {run:?}");
        assert!(run.err.contains(&format!("the attachment is refused: {said}")), "{run:?}");
    }
    for argument in ["plain", "=a/b", "plain=", "plain=text", "plain=a/b;c=d"] {
        let more = ["--tag", "a", "--insecure", "true", "--attach", argument];
        assert_eq!(push(layout.dir.path(), &image, &more).code, 2, "{argument}");
    }
    assert_eq!(registry.requests(), Vec::<String>::new(), "nobody was asked");
}

/// What a stand-in says of a list, and whether it lists by itself.
async fn asked(
    list: impl Fn(usize) -> Answer + Send + Sync + 'static,
    lists: bool,
) -> (Run, Vec<Asked>) {
    let layout = Layout::usual("x");
    let subject = layout.digest();
    let stand_in = StandIn::start(move |asked, before| {
        if asked.line.starts_with("GET") && asked.line.contains("/manifests/sha256-") {
            return Some(list(before));
        }
        let is_artifact = asked.line.starts_with("PUT") && asked.line.contains("/manifests/");
        (is_artifact && lists).then(|| (201, vec![("oci-subject", subject.clone())], String::new()))
    })
    .await;
    let image = format!("{}/team/app", stand_in.address);
    let (_folder, argument) = file(b"one");
    let more = ["--tag", "a", "--insecure", "true", "--attach", &argument].map(str::to_owned);
    let pushing = tokio::task::spawn_blocking(move || {
        push(layout.dir.path(), &image, &more.each_ref().map(String::as_str))
    });
    (pushing.await.expect("a run"), stand_in.asked())
}

fn has(asked: &[Asked], start: &str) -> bool {
    asked.iter().any(|one| one.line.starts_with(start))
}

#[tokio::test(flavor = "multi_thread")]
async fn b5_a_registry_that_lists_by_itself_gets_no_list() {
    let (run, asked) = asked(|_| (500, Vec::new(), String::new()), true).await;
    assert_eq!(run.code, 0, "{run:?}");
    assert!(!asked.iter().any(|one| one.line.contains("/manifests/sha256-")), "{asked:?}");
    assert!(has(&asked, "PUT /v2/team/app/manifests/a"), "{asked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b5_a_list_that_cannot_be_read_keeps_the_tag_away() {
    let long = "x".repeat(3 << 20);
    let forbidden: Answer = (403, Vec::new(), r#"{"errors":[{"code":"DENIED"}]}"#.into());
    for (answer, code, said) in [
        (forbidden, 31, "HTTP 403: DENIED"),
        ((200, Vec::new(), "{}".into()), 31, "it is no image index"),
        ((200, Vec::new(), long), 31, "no more is read or written"),
    ] {
        let (run, asked) = asked(move |_| answer.clone(), false).await;
        assert_eq!(run.code, code, "{said}: {run:?}");
        assert!(
            run.err.contains("cannot list what belongs to") && run.err.contains(said),
            "{run:?}"
        );
        assert!(!has(&asked, "PUT /v2/team/app/manifests/a"), "{asked:?}");
        assert!(!has(&asked, "PUT /v2/team/app/manifests/sha256-"), "{asked:?}");
    }
    // What may pass by itself is asked again.
    let later = |before: usize| {
        if before == 0 {
            (503, Vec::new(), String::new())
        } else {
            (404, Vec::new(), String::new())
        }
    };
    let (run, asked) = asked(later, false).await;
    assert_eq!(run.code, 0, "{run:?}");
    assert!(has(&asked, "PUT /v2/team/app/manifests/sha256-"), "{asked:?}");
}
