//! Whose document, and its metadata.

use super::*;

fn with(head: &str, metadata: &str) -> String {
    format!("{head}\nmetadata: {{{metadata}}}\nspec: {{modelAPI: gpt}}\n")
}

const AGENT: &str = "apiVersion: convoke.dev/v1alpha1\nkind: Agent";

#[test]
fn g7_other_projects_are_left_alone() {
    for text in [
        "apiVersion: v1\nkind: Secret\nmetadata: {name: x, finalizers: [a]}\nstringData: {a: b}\n",
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\n",
        "apiVersion: v1\nkind: Pod\nspec: {a: 1, nested: {b: 1, b: 2, c: !Ref x}}\n",
        "apiVersion: kagent.dev/v1alpha1\nkind: Agent\nstatus: {}\n",
        "apiVersion: example.com/v1\nkind: AllowList\nspec: {}\n",
    ] {
        let catalog = load_one(text);
        assert_eq!(shown(&catalog), Vec::<String>::new(), "{text}");
        assert_eq!(
            (catalog.documents, catalog.files, catalog.definitions.len()),
            (0, 1, 0),
            "{text}"
        );
    }
}

#[test]
fn g7_what_could_be_ours_is_an_error() {
    for (text, expected, hint) in [
        ("spec: {}\n", "1:1 CVK0202", "below the synced path"),
        ("apiVersion: v1\n", "1:1 CVK0202", "below the synced path"),
        ("- a\n- b\n", "1:1 CVK0201", "below the synced path"),
        ("hello\n", "1:1 CVK0201", "below the synced path"),
        ("apiVersion: 1\nkind: Agent\n", "1:13 CVK0202", ""),
        ("apiVersion: ''\nkind: Agent\n", "1:13 CVK0202", ""),
        (
            "apiVersion: convok.dev/v1alpha1\nkind: Agent\n",
            "1:13 CVK0203",
            "write apiVersion: convoke.dev/v1alpha1",
        ),
        ("apiVersion: Convoke.Dev/v1alpha1\nkind: X\n", "1:13 CVK0203", "write apiVersion"),
        ("apiVersion: \"convoke.dev \"\nkind: Agent\n", "1:13 CVK0203", "write apiVersion"),
        ("apiVersion: convoke.dev.v1alpha1\nkind: X\n", "1:13 CVK0203", "write apiVersion"),
        ("apiVersion: v1alpha1\nkind: Agent\n", "1:13 CVK0203", "write apiVersion"),
        (
            "apiVersion: convoke.dev/v1\nkind: Agent\n",
            "1:13 CVK0204",
            "this operator reads convoke.dev/v1alpha1",
        ),
        ("apiVersion: convoke.dev\nkind: Agent\n", "1:13 CVK0204", "this operator reads"),
        (
            "apiVersion: convoke.dev/v1alpha1/x\nkind: Agent\n",
            "1:13 CVK0204",
            "this operator reads",
        ),
        ("apiVersion: convoke.dev/v1alpha1\nkind: agnet\n", "2:7 CVK0205", "did you mean `Agent`?"),
        ("apiVersion: convoke.dev/v1alpha1\nkind: Pod\n", "2:7 CVK0205", "the kinds are ModelAPI"),
        (
            "apiVersion: convoke.dev/v1alpha1\nkind: GitSync\n",
            "2:7 CVK0207",
            "a repository may hold",
        ),
        ("apiVersion: v1\nkind: List\nitems: []\n", "2:7 CVK0206", "write each object"),
        ("apiVersion: convoke.dev/v1alpha1\nkind: AgentList\n", "2:7 CVK0206", "write each object"),
        ("apiVersion: x.io/v1\nkind: PodList\nitems: [{}]\n", "2:7 CVK0206", "write each object"),
        // A second apiVersion could be the one that counts.
        (
            "apiVersion: v1\nkind: Pod\napiVersion: convoke.dev/v1alpha1\n",
            "3:1 CVK0102",
            "remove one",
        ),
        ("apiVersion: v1\nkind: Pod\n<<: {kind: Agent}\n", "3:1 CVK0103", "write the fields out"),
        ("apiVersion: !x convoke.dev/v1alpha1\nkind: Agent\n", "1:16 CVK0104", ""),
    ] {
        let catalog = load_one(text);
        assert_eq!(
            places(&catalog).first().map(String::as_str),
            Some(expected),
            "{text}: {:?}",
            shown(&catalog)
        );
        assert!(
            catalog.problems[0].hint.as_deref().unwrap_or_default().starts_with(hint),
            "{text}"
        );
        assert!(catalog.broken_paths.contains("a.yaml"), "{text}");
        assert!(catalog.definitions.is_empty(), "{text}");
    }
}

#[test]
fn a_typo_in_the_api_version_holds_the_object() {
    for version in ["convoke.dev", "convok.dev/v1alpha1", "convoke.dev/v1", "1", "~", "v1alpha1"] {
        let text = agent("one", "").replace("convoke.dev/v1alpha1", version);
        let catalog = load_one(&text);
        assert_eq!(broken(&catalog), ["Agent/one"], "{version}");
        assert!(catalog.broken_paths.contains("a.yaml"), "{version}");
    }
}

#[test]
fn v34_v35_v36_metadata_from_git() {
    for (metadata, expected) in [
        ("", vec!["3:11 CVK0208"]),
        ("name: 7", vec!["3:18 CVK0208"]),
        ("name: ''", vec!["3:18 CVK0209"]),
        ("name: A-b", vec!["3:18 CVK0209"]),
        ("name: a.b", vec!["3:18 CVK0209"]),
        ("name: а", vec!["3:18 CVK0209"]),
        ("name: x, namespace: other", vec!["3:32 CVK0210"]),
        ("name: x, namespace: ''", vec!["3:32 CVK0210"]),
        ("name: x, namespace: 5", vec!["3:32 CVK0301"]),
        ("generateName: x-", vec!["3:11 CVK0208", "3:12 CVK0211"]),
        ("name: x, ownerReferences: []", vec!["3:21 CVK0211"]),
        ("name: x, finalizers: [a]", vec!["3:21 CVK0211"]),
        ("name: x, uid: a", vec!["3:21 CVK0211"]),
        ("name: x, resourceVersion: '1'", vec!["3:21 CVK0211"]),
        ("name: x, managedFields: []", vec!["3:21 CVK0211"]),
        ("name: x, creationTimestamp: null", vec!["3:21 CVK0211"]),
        ("name: x, lables: {}", vec!["3:21 CVK0212"]),
        ("name: x, labels: {convoke.dev/name: y}", vec!["3:30 CVK0213"]),
        ("name: x, labels: {convoke.dev/prune: disabled}", vec!["3:30 CVK0213"]),
        ("name: x, annotations: {convoke.dev/owner: y}", vec!["3:35 CVK0213"]),
        ("name: x, annotations: {convoke.dev/adopt-by: y}", vec!["3:35 CVK0213"]),
        ("name: x, annotations: {a.convoke.dev/y: z}", vec!["3:35 CVK0213"]),
        ("name: x, annotations: {convoke.dev/prune: disable}", vec!["3:54 CVK0214"]),
        ("name: x, labels: {a: 1}", vec!["3:33 CVK0214"]),
        ("name: x, labels: {a: true}", vec!["3:33 CVK0214"]),
        ("name: x, labels: {a: 'b c'}", vec!["3:33 CVK0214"]),
        ("name: x, labels: {a b: c}", vec!["3:30 CVK0214"]),
        ("name: x, labels: [a]", vec!["3:29 CVK0301"]),
    ] {
        let catalog = load_one(&with(AGENT, metadata));
        assert_eq!(places(&catalog), expected, "{metadata}: {:?}", shown(&catalog));
        assert!(catalog.definitions.is_empty(), "{metadata}");
    }
    for metadata in [
        "name: x, namespace: team",
        "name: x, labels: {a: '1', example.com/b: ''}, annotations: {c: 'any ä text'}",
        "name: x, annotations: {convoke.dev/prune: disabled}",
        "name: x, labels: , annotations: ~",
    ] {
        assert_eq!(shown(&load_one(&with(AGENT, metadata))), Vec::<String>::new(), "{metadata}");
    }
}

#[test]
fn without_a_namespace_any_is_accepted() {
    let tree = MemoryTree::new().file("a.yaml", with(AGENT, "name: x, namespace: other"));
    let catalog = Loader::new(Limits::default()).load(&tree, None);
    assert_eq!(names(&catalog), ["Agent/x"]);
}

#[test]
fn outermost_fields() {
    let text = format!("{}status: {{}}\nsepc: {{}}\n", agent("one", ""));
    let catalog = load_one(&text);
    assert_eq!(places(&catalog), ["7:1 CVK0215", "8:1 CVK0302"]);
    assert_eq!(catalog.problems[1].hint.as_deref(), Some("did you mean `spec`?"));
    assert_eq!(broken(&catalog), ["Agent/one"]);
    assert_eq!(places(&load_one(AGENT)), ["1:1 CVK0208", "1:1 CVK0303"]);
}
