//! The repository format: one test for each rule.

use super::diagnostic::code;
use super::tree::{EntryKind, RepositoryTree, TreeEntry, TreeError, TreeProblem};
use super::*;

/// A tree in memory: path → content; a content `-> x` is a link.
#[derive(Default)]
pub(crate) struct Memory {
    files: BTreeMap<String, String>,
    entries: Vec<TreeEntry>,
}

pub(crate) fn tree(files: &[(&str, &str)]) -> Memory {
    let files: BTreeMap<String, String> =
        files.iter().map(|(p, c)| ((*p).to_owned(), (*c).to_owned())).collect();
    let entries = files.iter().map(|(path, content)| entry(path, content)).collect();
    Memory { files, entries }
}

fn entry(path: &str, content: &str) -> TreeEntry {
    let kind = if content.starts_with("-> ") { EntryKind::Symlink } else { EntryKind::File };
    TreeEntry { path: path.into(), id: content.into(), kind }
}

impl RepositoryTree for Memory {
    fn entries(&self) -> &[TreeEntry] {
        &self.entries
    }
    fn problems(&self) -> &[TreeProblem] {
        &[]
    }
    fn lookup(&self, path: &str) -> Result<Option<TreeEntry>, TreeError> {
        Ok(self.files.get(path).map(|content| entry(path, content)))
    }
    fn read(&self, entry: &TreeEntry, max_bytes: u64) -> Result<Arc<[u8]>, TreeError> {
        let content = self.files[&entry.path].as_bytes();
        if content.len() as u64 > max_bytes {
            return Err(TreeError::TooLarge { path: entry.path.clone(), limit: max_bytes });
        }
        Ok(content.into())
    }
}

pub(super) fn team() -> Context {
    Context { namespace: Some("team".into()), ..Context::default() }
}

pub(super) fn load(files: &[(&str, &str)]) -> Catalog {
    Loader::new(Limits::default()).load(&tree(files), &team())
}

pub(super) fn places(catalog: &Catalog) -> Vec<String> {
    let number = |n: Option<i64>| n.map_or("?".to_owned(), |n| n.to_string());
    let line = |p: &Problem| {
        format!(
            "{}:{}:{} {}",
            p.path.as_deref().unwrap_or("?"),
            number(p.line),
            number(p.column),
            p.code
        )
    };
    catalog.problems.iter().map(line).collect()
}

pub(super) fn ids(catalog: &Catalog) -> Vec<String> {
    catalog.definitions.keys().map(ToString::to_string).collect()
}

pub(super) const MODEL: &str = "apiVersion: convoke.dev/v1alpha1\nkind: ModelAPI\nmetadata:\n  name: m\nspec:\n  mode: External\n  external:\n    url: https://m.example/v1\n";
const AGENT: &str = "# an agent\napiVersion: convoke.dev/v1alpha1\nkind: Agent\nmetadata:\n  name: a\nspec:\n  modelAPI: m\n  mcpServers:\n    - search\n  agentNetwork:\n    access: [b]\n  config:\n    instructionsFile: prompts/a.md\n";

#[test]
fn g7_good_files_become_definitions_and_others_are_left_alone() {
    let catalog = load(&[
        ("x/m.yaml", MODEL),
        ("x/a.yml", AGENT),
        ("x/prompts/a.md", "Be kind.\n"),
        ("x/deploy.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: d\n"),
        ("x/empty.yaml", "# nothing\n---\n"),
        ("x/README.md", "kind: [unclosed"),
    ]);
    assert_eq!(catalog.problems, []);
    assert_eq!(ids(&catalog), ["ModelAPI/m", "Agent/a"]);
    let agent = &catalog.definitions[&ObjectId::new(Kind::Agent, "a")];
    assert_eq!((agent.path.as_str(), agent.line, agent.column), ("x/a.yml", 2, 1));
    assert_eq!(agent.spec.json()["config"]["instructions"], "Be kind.\n");
    assert_eq!(agent.spec.json()["modelAPI"]["name"], "m");
    assert_eq!(agent.canonical_spec.json()["waitForDependencies"], true);
    assert_eq!(agent.references.len(), 3);
    assert_eq!((catalog.documents, catalog.files), (2, 2));
}

#[test]
fn g7_whatever_could_hide_an_object_is_an_error() {
    for (content, place) in [
        ("apiVersion: convoke.dv/v1alpha1\nkind: Agent\n", "f.yaml:1:13 CVK0102"),
        ("apiVersion: Convoke.dev/v1alpha1\nkind: Agent\n", "f.yaml:1:13 CVK0102"),
        ("apiVersion: convoke.dev/v1\nkind: Agent\n", "f.yaml:1:13 CVK0102"),
        ("apiVersion: apps/v1\n", "f.yaml:1:1 CVK0101"),
        (
            "apiVersion: convoke.dev/v1alpha1\nkind: Agnt\nmetadata:\n  name: a\n",
            "f.yaml:2:7 CVK0103",
        ),
        (
            "apiVersion: convoke.dev/v1alpha1\nkind: GitSync\nmetadata:\n  name: a\n",
            "f.yaml:2:7 CVK0103",
        ),
        ("apiVersion: v1\nkind: List\nitems: []\n", "f.yaml:2:7 CVK0103"),
        (
            "apiVersion: convoke.dev/v1alpha1\nkind: AgentList\nmetadata:\n  name: a\n",
            "f.yaml:2:7 CVK0103",
        ),
        ("apiVersion: convoke.dev\nkind: agent\n", "f.yaml:1:13 CVK0102"),
        ("apiVersion: v1\nkind: Agent\n", "f.yaml:1:13 CVK0102"),
        ("apiVersion: CONVOKE.DEV.V1ALPHA1\nkind: agent\n", "f.yaml:1:13 CVK0102"),
        ("apiVersion: my.convoke.dev/v2\nkind: x\n", "f.yaml:1:13 CVK0102"),
        ("apiVersion: 'convoke.dev/v1alpha1 '\nkind: Agent\n", "f.yaml:1:13 CVK0102"),
        ("apiVersion: convoke.dev/v1alpha1\nkind: 'Agent '\n", "f.yaml:2:7 CVK0103"),
        ("apiVersion: [convoke.dev/v1alpha1]\nkind: Agent\n", "f.yaml:1:13 CVK0101"),
        ("apiVersion: convoke.dev/v1alpha1\nkind: 5\n", "f.yaml:2:7 CVK0101"),
        ("apiVersion: convoke.dev/v1alpha1\nkind: Agent\nmetadata: [name]\n", "f.yaml:1:1 CVK0104"),
        ("apiVersion: v1\nkind: list\nitems: []\n", "f.yaml:2:7 CVK0103"),
        ("apiVersion: v2\nkind: ThingList\nitems: [{kind: Agent}]\n", "f.yaml:2:7 CVK0103"),
        ("null\n", "f.yaml:1:1 CVK0101"),
        ("name: something\n", "f.yaml:1:1 CVK0101"),
        ("- a\n", "f.yaml:1:1 CVK0101"),
        ("kind: [unclosed\n", "CVK0001"),
        ("\u{1}", "CVK0001"),
    ] {
        let catalog = load(&[("f.yaml", content)]);
        assert!(catalog.has_errors(), "{content}");
        assert!(
            places(&catalog).iter().any(|p| p.ends_with(place)),
            "{content}: {:?}",
            places(&catalog)
        );
        assert!(catalog.broken_paths.contains("f.yaml"), "{content}");
    }
}

#[test]
fn g7_what_may_not_come_from_git_is_refused_with_its_place() {
    let text = "apiVersion: convoke.dev/v1alpha1\nkind: ModelAPI\nmetadata:\n  name: M\n  namespace: other\n  finalizers: [x]\n  labels:\n    convoke.dev/kind: x\n    n: 5\n  annotations:\n    convoke.dev/owner: x\n    convoke.dev/prune: disabled\nstatus: {}\nspec:\n  mode: External\n  external:\n    url: https://m.example/v1\n";
    let expected = [
        "f.yaml:4:9 CVK0104",
        "f.yaml:5:14 CVK0105",
        "f.yaml:6:3 CVK0105",
        "f.yaml:8:5 CVK0105",
        "f.yaml:9:8 CVK0203",
        "f.yaml:11:5 CVK0105",
        "f.yaml:13:1 CVK0201",
    ];
    assert_eq!(places(&load(&[("f.yaml", text)])), expected);
}

#[test]
fn g10_a_typo_in_a_field_has_place_and_nearest_name() {
    let text = MODEL.replace("external:", "externl:");
    let catalog = load(&[("f.yaml", &text)]);
    let problem = &catalog.problems[0];
    assert_eq!(places(&catalog)[0], "f.yaml:7:3 CVK0201");
    assert_eq!(problem.hint.as_deref(), Some("did you mean external?"));
    assert_eq!(problem.object.as_deref(), Some("ModelAPI/m"));
    assert_eq!(
        catalog.broken.get(&ObjectId::new(Kind::ModelAPI, "m")).map(String::as_str),
        Some("f.yaml")
    );
}

#[test]
fn g10_a_duplicate_quarantines_only_that_identity() {
    let other = MODEL.replace("name: m", "name: n");
    let catalog = load(&[("a.yaml", MODEL), ("b.yaml", MODEL), ("c.yaml", &other)]);
    assert_eq!(ids(&catalog), ["ModelAPI/n"]);
    assert_eq!(places(&catalog), ["a.yaml:1:1 CVK0106", "b.yaml:1:1 CVK0106"]);
    assert!(catalog.problems[0].message.contains("b.yaml:1"));
}

#[test]
fn g13_the_unit_of_quarantine_is_the_file() {
    let text = format!(
        "{MODEL}---\n{}",
        MODEL.replace("name: m", "name: n").replace("mode: External", "mode: Extrnal")
    );
    let other = MODEL.replace("name: m", "name: o");
    let catalog = load(&[("two.yaml", &text), ("o.yaml", &other)]);
    assert_eq!(ids(&catalog), ["ModelAPI/o"]);
    assert_eq!(catalog.broken.len(), 2);
    assert_eq!(catalog.problems[0].hint.as_deref(), Some("did you mean External?"));
}

#[test]
fn g13_a_faulty_document_that_says_who_it_is_is_held_by_name() {
    let text = format!("{MODEL}    url: https://twice.example\n");
    let catalog = load(&[("f.yaml", &text)]);
    assert_eq!(places(&catalog), ["f.yaml:9:5 CVK0002"]);
    assert_eq!(catalog.broken.len(), 1);
}

#[test]
fn g7_how_other_projects_write_their_yaml_is_not_our_business() {
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec:\n  base: &base {a: 1}\n  merged:\n    <<: *base\n  twice: 1\n  twice: 2\n  mode: 0644\n  big: 99999999999999999999\n  tagged: !Ref x\n";
    let catalog = load(&[("d.yaml", deployment), ("m.yaml", MODEL)]);
    assert_eq!(places(&catalog), Vec::<String>::new());
    assert_eq!(ids(&catalog), ["ModelAPI/m"]);
    assert!(catalog.broken_paths.is_empty());
    // A fault in `apiVersion` or `kind` may hide an object of ours.
    for (line, place) in [
        ("apiVersion: convoke.dev/v1alpha1\n", "13:1 CVK0002"),
        ("<<: *base\n", "13:1 CVK0003"),
        ("kind: !Agent x\n", "13:1 CVK0002"),
    ] {
        let catalog = load(&[("d.yaml", &format!("{deployment}{line}")), ("m.yaml", MODEL)]);
        assert!(places(&catalog).contains(&format!("d.yaml:{place}")), "{:?}", places(&catalog));
        assert!(catalog.broken_paths.contains("d.yaml"));
    }
}

#[test]
fn g8_files_are_found_beside_the_definition_or_from_the_root_and_nowhere_else() {
    let with = |file: &str| AGENT.replace("prompts/a.md", file);
    for (named, ok) in [
        ("prompts/a.md", true),
        ("./prompts/../prompts/a.md", true),
        ("/x/prompts/a.md", true),
        ("../outside.md", true),
        ("../../etc/passwd", false),
        ("prompts/b.md", false),
        ("link.md", false),
        ("/.git/config", false),
    ] {
        let files = [
            ("x/a.yaml", with(named)),
            ("x/prompts/a.md", "p".into()),
            ("outside.md", "o".into()),
            ("x/m.yaml", MODEL.into()),
        ];
        let mut memory = tree(&files.iter().map(|(p, c)| (*p, c.as_str())).collect::<Vec<_>>());
        memory.files.insert("x/link.md".into(), "-> /etc/passwd".into());
        let catalog = Loader::new(Limits::default()).load(&memory, &Context::default());
        assert_eq!(!catalog.has_errors(), ok, "{named}: {:?}", catalog.problems);
        if !ok {
            assert_eq!(places(&catalog), ["x/a.yaml:13:23 CVK0206"], "{named}");
        }
    }
    let both = AGENT.replace(
        "    instructionsFile: prompts/a.md",
        "    instructionsFile: prompts/a.md\n    instructions: x",
    );
    let catalog = load(&[("a.yaml", &both), ("prompts/a.md", "p")]);
    assert_eq!(places(&catalog), ["a.yaml:13:23 CVK0206"]);
}

#[test]
fn g8_a_changed_prompt_changes_its_agent_and_parses_nothing_else() {
    let mut loader = Loader::new(Limits::default());
    let first = loader.load(
        &tree(&[("a.yaml", AGENT), ("prompts/a.md", "one"), ("m.yaml", MODEL)]),
        &Context::default(),
    );
    assert_eq!(loader.parsed(), 2);
    let again = loader.load(
        &tree(&[("a.yaml", AGENT), ("prompts/a.md", "one"), ("m.yaml", MODEL)]),
        &Context::default(),
    );
    assert_eq!(loader.parsed(), 2);
    let id = ObjectId::new(Kind::Agent, "a");
    assert!(Arc::ptr_eq(&first.definitions[&id], &again.definitions[&id]));
    let changed = loader.load(
        &tree(&[("a.yaml", AGENT), ("prompts/a.md", "two"), ("m.yaml", MODEL)]),
        &Context::default(),
    );
    assert_eq!(loader.parsed(), 3);
    assert_eq!(changed.definitions[&id].spec.json()["config"]["instructions"], "two");
}

#[test]
fn g6_links_lfs_pointers_large_and_foreign_encodings_are_errors() {
    let large = "#".repeat((1 << 20) + 1);
    let catalog = load(&[
        ("large.yaml", &large),
        ("lfs.yaml", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
        ("link", "-> /var/run/secrets"),
        ("m.yaml", MODEL),
    ]);
    assert_eq!(
        places(&catalog),
        ["large.yaml:?:? CVK0004", "lfs.yaml:?:? CVK0006", "link:?:? CVK0006"]
    );
    assert_eq!(ids(&catalog), ["ModelAPI/m"]);
    assert!(!catalog.again, "reading them again changes nothing");
}

#[test]
fn g12_a_path_without_definitions_is_an_error() {
    let catalog = load(&[("README.md", "hi")]);
    assert_eq!(places(&catalog), ["?:?:? CVK0008"]);
}

#[test]
fn g10_references_are_warnings_with_the_nearest_name() {
    let search = "apiVersion: convoke.dev/v1alpha1\nkind: MCPServer\nmetadata:\n  name: serch\nspec:\n  package:\n    registry: PyPI\n    name: mcp-search\n";
    let catalog =
        load(&[("a.yaml", AGENT), ("prompts/a.md", "p"), ("m.yaml", MODEL), ("s.yaml", search)]);
    assert!(!catalog.has_errors(), "{:?}", catalog.problems);
    assert_eq!(places(&catalog), ["s.yaml:6:3 CVK0302"]);
    let warnings = check_references(&catalog, &|id| id.name == "b");
    assert_eq!(warnings.len(), 1);
    assert_eq!((warnings[0].line, warnings[0].column), (Some(9), Some(7)));
    assert_eq!(warnings[0].hint.as_deref(), Some("did you mean serch?"));
}

#[test]
fn a2_what_only_an_image_of_ones_own_can_keep_is_a_warning() {
    let servers = "mcpServers: [s, {name: t, tools: [a], requireApproval: [a]}]";
    let found = |lines: &[&str]| {
        let lines = lines.join("\n  ");
        let agent = format!(
            "apiVersion: convoke.dev/v1alpha1\nkind: Agent\nmetadata:\n  name: a\nspec:\n  modelAPI: m\n  {lines}\n"
        );
        let catalog = load(&[("a.yaml", &agent)]);
        assert!(!catalog.has_errors(), "{:?}", catalog.problems);
        places(&catalog)
    };
    let nothing: [&str; 0] = [];
    assert_eq!(found(&[servers, "config: {reload: Hot}"]), nothing, "Convoke's image");
    let tools = ["a.yaml:7:29 CVK0304", "a.yaml:7:41 CVK0304"];
    assert_eq!(found(&[servers, "image: own:1"]), tools);
    assert_eq!(found(&[servers, "buildRef: b"]), tools);
    let hot = ["config: {reload: Hot}", "image: own:1"];
    assert_eq!(found(&hot), ["a.yaml:7:12 CVK0304"]);
    assert_eq!(found(&["mcpServers: [s]", "image: own:1", "config: {reload: Rollout}"]), nothing);
}

/// A tree with one file that cannot be read.
pub(super) struct Flaky(pub Memory, pub &'static str);

impl RepositoryTree for Flaky {
    fn entries(&self) -> &[TreeEntry] {
        self.0.entries()
    }
    fn problems(&self) -> &[TreeProblem] {
        &[]
    }
    fn lookup(&self, path: &str) -> Result<Option<TreeEntry>, TreeError> {
        self.0.lookup(path)
    }
    fn read(&self, entry: &TreeEntry, max_bytes: u64) -> Result<Arc<[u8]>, TreeError> {
        if entry.path == self.1 {
            return Err(TreeError::Unreadable { path: self.1.into(), reason: "disk".into() });
        }
        self.0.read(entry, max_bytes)
    }
}

#[test]
fn g7_what_could_not_be_read_once_is_read_again() {
    let files = [("a.yaml", AGENT), ("prompts/a.md", "p"), ("m.yaml", MODEL)];
    for unreadable in ["m.yaml", "prompts/a.md"] {
        let mut loader = Loader::new(Limits::default());
        let catalog = loader.load(&Flaky(tree(&files), unreadable), &Context::default());
        assert_eq!(catalog.problems[0].code, code::UNREADABLE, "{unreadable}");
        assert!(catalog.again, "{unreadable}");
        let catalog = loader.load(&tree(&files), &Context::default());
        assert_eq!(catalog.problems, [], "{unreadable}");
        assert!(!catalog.again, "{unreadable}");
        assert_eq!(catalog.definitions.len(), 2);
    }
}

#[test]
fn g7_other_groups_with_kinds_like_ours_are_left_alone() {
    let catalog = load(&[
        ("k.yaml", "apiVersion: kagent.dev/v1alpha1\nkind: Agent\nmetadata:\n  name: a\n"),
        ("m.yaml", MODEL),
    ]);
    assert_eq!(catalog.problems, []);
    assert_eq!(ids(&catalog), ["ModelAPI/m"]);
}

#[test]
fn g12_a_misspelt_prune_annotation_is_an_error() {
    let text =
        MODEL.replace("  name: m\n", "  name: m\n  annotations:\n    convoke.dev/prune: disable\n");
    assert_eq!(places(&load(&[("f.yaml", &text)])), ["f.yaml:6:24 CVK0105"]);
}

#[test]
fn v53_a_password_in_a_url_is_not_repeated() {
    let text = MODEL.replace("https://m.example/v1", "https://user:hunter2@m.example/v1");
    let catalog = load(&[("f.yaml", &text)]);
    assert!(catalog.has_errors());
    assert!(!format!("{:?}", catalog.problems).contains("hunter2"), "{:?}", catalog.problems);
}

#[test]
fn m3_an_external_address_is_one_to_which_a_path_can_be_appended() {
    for (url, is_taken) in [
        ("https://m.example", true),
        ("https://m.example:8443/openai/v1/", true),
        ("https://m.example/v1?api-version=preview", false),
        ("https://m.example?api-version=preview", false),
        ("'https://m.example/v1#part'", false),
        ("https:///v1", false),
    ] {
        let catalog = load(&[("f.yaml", &MODEL.replace("https://m.example/v1", url))]);
        assert_eq!(!catalog.has_errors(), is_taken, "{url}: {:?}", catalog.problems);
    }
}

#[test]
fn g10_an_empty_block_is_no_block() {
    let text = "apiVersion: convoke.dev/v1alpha1\nkind: ModelAPI\nmetadata:\n  name: m\nspec:\n  mode: Proxy\n  proxy:\n";
    assert_eq!(places(&load(&[("f.yaml", text)])), ["f.yaml:7:8 CVK0203"]);
}

#[test]
fn g7_nothing_hides_behind_a_nul() {
    let text = format!("{MODEL}\0\n---\n{}", MODEL.replace("name: m", "name: n"));
    let catalog = load(&[("f.yaml", &text)]);
    assert_eq!(places(&catalog), ["f.yaml:9:1 CVK0001"]);
    assert!(catalog.broken_paths.contains("f.yaml"));
}

#[test]
fn g10_a_tag_that_names_images_by_what_they_are_made_of_is_refused_at_its_place() {
    let build = |tag: &str| {
        format!(
            "apiVersion: convoke.dev/v1alpha1\nkind: AgentBuild\nmetadata: {{name: b}}\nspec:\n  source: {{gitSync: {{}}}}\n  output:\n    image: team/i\n    tag: {tag}\n"
        )
    };
    for tag in ["v1", "'{short}'", "v-cvk-1"] {
        assert_eq!(load(&[("b.yaml", &build(tag))]).problems, [], "{tag}");
    }
    let problems = load(&[("b.yaml", &build("cvk-latest"))]).problems;
    let [problem] = problems.as_slice() else { panic!("{problems:?}") };
    assert_eq!((problem.line, problem.column), (Some(8), Some(10)), "{problem:?}");
    assert!(problem.message.contains("must not begin with cvk-"), "{}", problem.message);
}

#[test]
fn b2_the_source_of_a_build_is_one_repository_and_what_is_wrong_with_it_has_a_place() {
    let build = |source: &str| {
        format!(
            "apiVersion: convoke.dev/v1alpha1\nkind: AgentBuild\nmetadata: {{name: b}}\nspec:\n  source:\n{source}  output: {{image: team/i}}\n"
        )
    };
    for good in [
        "    gitSync: {}\n",
        "    git: {url: 'https://h/a.git'}\n    subfolder: a\n",
        "    git: {url: 'ssh://git@h/a.git', ref: {semver: '^1'}, secretRef: {name: s}, interval: 5m, timeout: 2m}\n",
        "    git: {url: 'http://h/a.git', ref: {tag: v1}, proxySecretRef: {name: s}}\n",
    ] {
        assert_eq!(load(&[("b.yaml", &build(good))]).problems, [], "{good}");
    }
    for (bad, line, message) in [
        ("    subfolder: a\n", 6, "exactly one of gitSync and git"),
        ("    gitSync: {}\n    git: {url: 'https://h/a'}\n", 6, "exactly one of gitSync and git"),
        ("    git:\n      url: git@h:a\n", 7, "ssh://user@host/path"),
        ("    git:\n      url: https://u:hunter2@h/a\n", 7, "name a Secret in secretRef"),
        ("    git:\n      url: https://h/a\n      ref: {tag: a, branch: b}\n", 8, "exactly one of"),
        ("    git:\n      url: https://h/a\n      interval: 1ms\n", 8, "at least 1s"),
        ("    git:\n      url: https://h/a\n      timeout: 2h\n", 8, "at most 1h"),
        ("    git:\n      url: https://h/a\n      branch: b\n", 8, "branch"),
        ("    git:\n      ref: {tag: a}\n", 6, "required field url"),
    ] {
        let problems = load(&[("b.yaml", &build(bad))]).problems;
        let found = problems.iter().find(|one| one.message.contains(message));
        assert!(found.is_some_and(|one| one.line == Some(line)), "{bad}: {problems:?}");
        assert!(!format!("{problems:?}").contains("hunter2"), "{problems:?}");
    }
}
