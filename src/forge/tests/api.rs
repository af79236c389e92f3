use super::*;

fn asked(forge: Forge, repository: &str) -> Option<String> {
    let status = CommitStatus {
        commit: "c0ffee".into(),
        state: State::Failure,
        context: "convoke/team/main".into(),
        description: "x".repeat(200),
    };
    let request = request(forge, &Url::parse(repository).expect("a URL"), &status)?;
    let description = request.body["description"].as_str().expect("text");
    assert_eq!(description.len(), 140, "what is too long is cut");
    Some(format!("{} {}", request.url, request.body["state"].as_str().expect("text")))
}

#[test]
fn g19_each_forge_is_asked_as_its_documentation_says() {
    for (forge, repository, expected) in [
        (
            Forge::GitHub,
            "https://github.com/team/agents.git",
            "https://api.github.com/repos/team/agents/statuses/c0ffee failure",
        ),
        (
            Forge::GitHub,
            "ssh://git@github.com/team/agents",
            "https://api.github.com/repos/team/agents/statuses/c0ffee failure",
        ),
        (
            Forge::GitHub,
            "https://ghe.example.com/team/agents",
            "https://ghe.example.com/api/v3/repos/team/agents/statuses/c0ffee failure",
        ),
        (
            Forge::Gitea,
            "https://git.example.com:3000/team/agents.git",
            "https://git.example.com:3000/api/v1/repos/team/agents/statuses/c0ffee failure",
        ),
        (
            Forge::Gitea,
            "ssh://git@git.example.com:2222/team/agents.git",
            "https://git.example.com/api/v1/repos/team/agents/statuses/c0ffee failure",
        ),
        (
            Forge::GitLab,
            "https://gitlab.com/group/sub/agents.git",
            "https://gitlab.com/api/v4/projects/group%2Fsub%2Fagents/statuses/c0ffee failed",
        ),
    ] {
        assert_eq!(asked(forge, repository).as_deref(), Some(expected));
    }
}

#[test]
fn g19_what_is_no_repository_of_a_forge_is_not_asked_for() {
    for repository in [
        "https://github.com/agents.git",
        "https://github.com/a/b/c.git",
        "https://github.com/a/..%2f..%2fuser",
        "https://github.com/a/b%3fx",
        "file:///team/agents",
    ] {
        assert_eq!(asked(Forge::GitHub, repository), None, "{repository}");
    }
    assert_eq!(asked(Forge::GitLab, "https://gitlab.com/agents"), None);
}
