//! The packages of a lock file, installed by the script of the shipped step with a real pip, from an index of its own: B11.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;

use super::*;

/// Makes the wheel of `demo`, of one version, in a folder: a module, a program, and what an older build has compiled.
const WHEEL: &str = r##"
import sys, zipfile
folder, version = sys.argv[1:]
needs = "Requires-Dist: more>=1\n" if version == "9.0" else ""
info = f"demo-{version}.dist-info"
files = {
    "demo/__init__.py": f"VERSION = '{version}'\n",
    "demo/__main__.py": "import demo\nprint(demo.VERSION)\n",
    "demo/__pycache__/__init__.cpython-313.pyc": "compiled some day",
    f"demo-{version}.data/scripts/say-demo": "#!python\nimport demo\nprint(demo.VERSION)\n",
    f"{info}/METADATA": f"Metadata-Version: 2.1\nName: demo\nVersion: {version}\n{needs}",
    f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    f"{info}/entry_points.txt": "[console_scripts]\nrun-demo = demo.__main__:main\n",
}
files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
with zipfile.ZipFile(f"{folder}/demo-{version}-py3-none-any.whl", "w") as wheel:
    for name, text in files.items():
        entry = zipfile.ZipInfo(name)
        entry.external_attr = (0o100755 if "scripts" in name else 0o100644) << 16
        wheel.writestr(entry, text)
"##;
const NAME: &str = "demo-1.0-py3-none-any.whl";

/// Whether there is a Python with pip. With `CI=true` there must be.
fn has_pip() -> bool {
    let found = Command::new("python3").args(["-I", "-m", "pip", "--version"]).output();
    let found = found.is_ok_and(|output| output.status.success());
    assert!(found || std::env::var("CI").as_deref() != Ok("true"), "pip is missing");
    found
}

/// A package index. A path that it does not know is a 404.
#[derive(Clone, Default)]
struct Index {
    files: BTreeMap<String, Vec<u8>>,
    /// Everything is answered with this.
    status: Option<u16>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Index {
    /// With the wheels of these versions of `demo`.
    fn of(versions: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut index = Self::default();
        let mut links = String::new();
        for version in versions {
            let made =
                Command::new("python3").args(["-c", WHEEL, text(folder.path()), version]).status();
            assert!(made.expect("python3").success());
            let name = format!("demo-{version}-py3-none-any.whl");
            let bytes = std::fs::read(folder.path().join(&name)).expect("a wheel");
            links += &format!("<a href=\"/files/{name}\">{name}</a>\n");
            index.files.insert(format!("/files/{name}"), bytes);
        }
        index.files.insert("/simple/demo/".into(), links.into_bytes());
        index
    }

    fn hash(&self, name: &str) -> String {
        digest(&self.files[&format!("/files/{name}")])
    }

    /// Serves it; gives its URL.
    async fn serve(&self) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let app = Router::new().fallback(answer).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        format!("http://{address}/simple")
    }
}

async fn answer(
    State(index): State<Index>,
    request: Request,
) -> (StatusCode, [(&'static str, &'static str); 1], Vec<u8>) {
    let path = request.uri().path().to_owned();
    let found = index.files.get(&path).cloned();
    let html =
        [("content-type", if path.ends_with('/') { "text/html" } else { "application/zip" })];
    index.asked.lock().expect("the list").push(path);
    match (index.status, found) {
        (Some(status), _) => (StatusCode::from_u16(status).expect("a status"), html, Vec::new()),
        (None, Some(body)) => (StatusCode::OK, html, body),
        (None, None) => (StatusCode::NOT_FOUND, html, Vec::new()),
    }
}

/// The script of the shipped step.
fn script() -> String {
    let read = |text: &str| serde_saphyr::from_str::<Value>(text).expect("YAML");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/pipelines/step-dependencies.yaml");
    let config_map = read(&std::fs::read_to_string(path).expect("a file"));
    let task = read(config_map["data"]["task-spec.yaml"].as_str().expect("a text"));
    task["steps"][1]["script"].as_str().expect("a script").to_owned()
}

/// What the step left.
struct Installed {
    code: i32,
    said: String,
    finding: String,
    /// Has `packages` if they were installed.
    dir: TempDir,
}

impl Installed {
    fn packages(&self) -> String {
        text(&self.dir.path().join("packages")).to_owned()
    }
}

/// Checks the lock file of the folder `image` of a source, and installs it as the step does. `path` is where programs are.
fn install_with(source: &Path, url: &str, path: &str) -> Installed {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| text(&dir.path().join(name)).to_owned();
    std::fs::create_dir(at("work")).expect("a folder");
    let finding = format!("--finding-file={}", at("finding"));
    let output = format!("--output={}/requirements.txt", at("work"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_convoke"));
    command.args(["check-lock-file", "--subfolder=image", "--lock-file=requirements.txt"]);
    let mut done = command.arg("--root").arg(source).args([finding, output]).output().expect("it");
    if done.status.success() {
        done = Command::new("/usr/bin/timeout")
            .args([HANGS, "/bin/sh", "-c", &script()])
            .env_clear()
            .env("PATH", path)
            // Neither the environment nor what it names counts.
            .envs([("PIP_INDEX_URL", "http://127.0.0.1:1/"), ("PIP_NO_BINARY", ":all:")])
            .env("WORK_DIR", at("work"))
            .env("TARGET_DIR", at("packages"))
            .env("INDEX_URL", url)
            .env("RESULT_FINDING", at("finding"))
            .current_dir(source.join("image"))
            .output()
            .expect("sh");
    }
    let code = done.status.code().expect("an exit code");
    let said = String::from_utf8([done.stdout, done.stderr].concat()).expect("UTF-8");
    let finding = std::fs::read_to_string(dir.path().join("finding")).unwrap_or_default();
    Installed { code, said, finding, dir }
}

fn install(source: &Path, url: &str) -> Installed {
    install_with(source, url, &std::env::var("PATH").expect("a path"))
}

/// A source with this lock file, and with a module that must not be taken for pip.
fn locked(lock: &str) -> TempDir {
    source(&[
        ("main.py", "import demo\n"),
        ("requirements.txt", lock),
        ("pip/__main__.py", "raise SystemExit('code of the folder was run')\n"),
        ("pip/__init__.py", ""),
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn b11_packages_of_a_lock_file_are_a_layer_that_stays_when_the_code_changes() {
    if !has_pip() {
        return;
    }
    let Some(registry) = Registry::start(&Settings::default()) else { return };
    let store = Store::of(&registry);
    store.base("team/base", "1", OCI).await;
    let base = format!("{}/team/base:1", registry.host());
    let image = format!("{}/team/app", registry.host());
    let index = Index::of(&["1.0", "2.0"]);
    let url = index.serve().await;
    let lock = format!("demo==1.0 --hash={}\n", index.hash(NAME));
    let appended = |source: &TempDir, installed: &Installed, tag: &str| {
        let more = [
            &format!("--tag={tag}"),
            "--lock-file=requirements.txt",
            &format!("--dependencies={}", installed.packages()),
        ];
        let run = append(source.path(), &base, &image, &more);
        assert_eq!(run.code, 0, "{run:?}");
    };

    let one = locked(&lock);
    let installed = install(one.path(), &url);
    assert_eq!((installed.code, installed.finding.as_str()), (0, ""), "{}", installed.said);
    appended(&one, &installed, "one");
    let first = store.json("team/app/manifests/one").await;
    let layers = first["layers"].as_array().expect("layers");
    assert_eq!(layers.len(), 4);
    let layer = layers[2]["digest"].as_str().expect("a digest");
    let layer = store.get(&format!("team/app/blobs/{layer}")).await.expect("the layer");
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(&layer[..]));
    let modes: BTreeMap<_, _> = archive
        .entries()
        .expect("entries")
        .map(|entry| {
            let entry = entry.expect("an entry");
            let path = entry.path().expect("a path").display().to_string();
            let header = entry.header();
            assert_eq!((header.uid().ok(), header.mtime().ok()), (Some(0), Some(0)), "{path}");
            (path, header.mode().expect("a mode"))
        })
        .collect();
    assert_eq!(modes.get("opt/dependencies/bin/say-demo"), Some(&0o755), "{modes:?}");
    assert_eq!(modes.get("opt/dependencies/bin/run-demo"), Some(&0o755), "{modes:?}");
    assert_eq!(modes.get("opt/dependencies/demo/__init__.py"), Some(&0o644), "{modes:?}");
    assert!(!modes.keys().any(|path| path.contains("__pycache__")), "{modes:?}");
    let config = first["config"]["digest"].as_str().expect("a digest");
    let config = store.json(&format!("team/app/blobs/{config}")).await;
    let environment = config["config"]["Env"].as_array().expect("a list");
    assert!(environment.contains(&json!("PYTHONPATH=/opt/dependencies")), "{environment:?}");
    let path = environment.iter().filter_map(Value::as_str).find(|one| one.starts_with("PATH="));
    assert!(path.is_some_and(|path| path.starts_with("PATH=/opt/dependencies/bin:")), "{path:?}");
    assert_eq!(config["rootfs"]["diff_ids"].as_array().map(Vec::len), Some(4));

    // Installed anew, in another second and elsewhere, for other code: the same layer, which is not sent again.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let two = locked(&lock);
    std::fs::write(two.path().join("image/main.py"), "import demo  # two\n").expect("a file");
    let before = registry.requests().len();
    appended(&two, &install(two.path(), &url), "two");
    let second = store.json("team/app/manifests/two").await;
    assert_eq!(second["layers"][2], first["layers"][2]);
    assert_ne!(second["layers"][3], first["layers"][3]);
    let requests = registry.requests();
    let uploads = requests[before..].iter().filter(|one| one.starts_with("PUT /v2/team/app/blobs"));
    assert_eq!(uploads.count(), 2, "the folder and the configuration: {requests:#?}");

    // Another lock is another layer.
    let three = locked(
        &lock
            .replace("1.0", "2.0")
            .replace(&index.hash(NAME), &index.hash("demo-2.0-py3-none-any.whl")),
    );
    appended(&three, &install(three.path(), &url), "three");
    let third = store.json("team/app/manifests/three").await;
    assert_ne!(third["layers"][2], first["layers"][2]);
    // Without a lock file they are not there.
    let run = append(one.path(), &base, &image, &["--tag=four", "--lock-file="]);
    assert_eq!(run.code, 0, "{run:?}");
    let fourth = store.json("team/app/manifests/four").await;
    assert_eq!(fourth["layers"].as_array().map(Vec::len), Some(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn b11_packages_that_cannot_be_installed_say_why() {
    if !has_pip() {
        return;
    }
    let mut index = Index::of(&["1.0", "9.0"]);
    let more = "<a href=\"/files/more-1.0-py3-none-any.whl\">more-1.0-py3-none-any.whl</a>";
    index.files.insert("/simple/more/".into(), more.into());
    let url = index.serve().await;
    let hash = index.hash(NAME);
    let good = format!("demo==1.0 --hash={hash}\n");
    let zeros = format!("sha256:{}", "0".repeat(64));
    let busy = Index { status: Some(503), ..Index::default() }.serve().await;
    let closed = Index { status: Some(403), ..Index::default() }.serve().await;
    let unknown = format!("unknown==1.0 --hash={zeros}\n");
    let wants_more = format!("demo==9.0 --hash={}\n", index.hash("demo-9.0-py3-none-any.whl"));
    for (lock, url, code, finding) in [
        (good.replace(&hash, &zeros), &url, 24, "another hash: demo==1.0 from http://127.0.0.1:"),
        (good.replace("1.0", "3.0"), &url, 24, "No matching distribution found for demo==3.0"),
        (unknown, &url, 24, "No matching distribution found for unknown==1.0"),
        (wants_more, &url, 24, "it lacks more>=1, which demo==9.0 needs"),
        ("demo==1.0\n".into(), &url, 24, "requirements.txt: line 1: \"demo==1.0\" has no --hash"),
        (
            format!("--index-url {url}\n{good}"),
            &url,
            24,
            "requirements.txt: line 1: the option \"--index-url\" is not taken",
        ),
        (good.clone(), &closed, 24, "the index refuses access: http://127.0.0.1:"),
        (good.clone(), &busy, 37, ""),
        (good.clone(), &"http://127.0.0.1:1/simple".to_owned(), 37, ""),
        (good.clone(), &"file:///etc".to_owned(), 1, ""),
    ] {
        let source = locked(&lock);
        let installed = install(source.path(), url);
        let said = format!("{}\n{}", installed.finding, installed.said);
        assert_eq!(installed.code, code, "{lock}: {said}");
        assert!(installed.finding.starts_with(finding), "{lock}: {said}");
        assert_eq!(installed.finding.is_empty(), finding.is_empty(), "{lock}: {said}");
        assert!(!said.contains("code of the folder was run"), "{said}");
    }
    // And the same goes well, if nothing is wrong.
    assert_eq!(install(locked(&good).path(), &url).code, 0);
    // An image without Python has a shell and little more.
    let bare = tempfile::tempdir().expect("a folder");
    let mkdir = std::fs::canonicalize("/bin/mkdir").expect("mkdir");
    std::os::unix::fs::symlink(mkdir, bare.path().join("mkdir")).expect("a link");
    let installed = install_with(locked(&good).path(), &url, text(bare.path()));
    assert_eq!(installed.code, 38, "{}", installed.said);
    assert!(installed.said.contains("the base image has no python3"), "{}", installed.said);
}

#[tokio::test(flavor = "multi_thread")]
async fn b11_a_lock_file_is_read_in_the_folder_only() {
    let check = |change: &dyn Fn(&Path)| {
        let source = locked("");
        change(&source.path().join("image"));
        install(source.path(), "http://127.0.0.1:1/")
    };
    let lock = |folder: &Path| folder.join("requirements.txt");
    let remove = |folder: &Path| std::fs::remove_file(lock(folder)).expect("removed");
    for (installed, why) in [
        (
            check(&|folder| {
                remove(folder);
                std::os::unix::fs::symlink("/etc/passwd", lock(folder)).expect("a link");
            }),
            "no folder or regular file (symbolic links are not followed)",
        ),
        (
            check(&|folder| {
                std::fs::rename(folder, folder.with_file_name("elsewhere")).expect("moved");
                std::os::unix::fs::symlink("elsewhere", folder).expect("a link");
            }),
            "no folder or regular file (symbolic links are not followed)",
        ),
        (
            check(&|folder| {
                remove(folder);
                std::fs::create_dir(lock(folder)).expect("a folder");
            }),
            "no folder or regular file",
        ),
        (check(&remove), "No such file"),
        (check(&|folder| std::fs::write(lock(folder), b"\xff").expect("a file")), "not UTF-8"),
        (
            check(&|folder| std::fs::write(lock(folder), noise_text()).expect("a file")),
            "it is larger than 4 MiB",
        ),
    ] {
        assert_eq!(installed.code, 24, "{why}: {}", installed.said);
        assert!(installed.finding.contains(why), "{why}: {}", installed.finding);
    }
}

fn noise_text() -> String {
    "# nothing\n".repeat(500_000)
}

#[tokio::test(flavor = "multi_thread")]
async fn b11_packages_that_no_layer_takes_stop_an_append() {
    let Some(registry) = Registry::start(&Settings::default()) else { return };
    Store::of(&registry).base("team/base", "1", OCI).await;
    let (base, image) =
        (format!("{}/team/base:1", registry.host()), format!("{}/team/app", registry.host()));
    let packages = tempfile::tempdir().expect("a folder");
    let folder = format!("--dependencies={}", packages.path().display());
    let tried = |folder: &str| {
        append(usual().path(), &base, &image, &["--tag=a", "--lock-file=x.txt", folder])
    };
    std::os::unix::fs::symlink("/etc/shadow", packages.path().join("link")).expect("a link");
    for (folder, why) in [
        (
            folder.as_str(),
            "the packages of the lock file: opt/dependencies/link is a symbolic link",
        ),
        ("--dependencies=/nowhere", "no step has installed the packages of x.txt"),
        ("--platform=", "no step has installed the packages of x.txt"),
    ] {
        let run = tried(folder);
        assert_eq!(run.code, 23, "{run:?}");
        assert!(run.err.contains(why), "{run:?}");
    }
    assert!(!registry.requests().iter().any(|one| one.starts_with("PUT /v2/team/app")));
}
