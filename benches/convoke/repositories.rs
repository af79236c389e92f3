//! Several repositories, each with the folders of the GitSyncs that follow it.

use std::path::{Path, PathBuf};

use crate::repository::Fleet;
use crate::stage::Outcome;
use crate::support::git_http::{GitServer, Repo};

/// The name of the folder that is served.
const FOLDER: &str = "repositories";

/// The repositories, if there is more than one.
pub struct Repositories {
    folder: PathBuf,
    count: usize,
    all: Vec<Repo>,
    server: GitServer,
}

impl Repositories {
    /// So many, in a folder of this one. They are filled later.
    pub fn new(count: usize, dir: &Path) -> Outcome<Self> {
        let folder = dir.join(FOLDER);
        std::fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let server = GitServer::start(&folder);
        Ok(Self { folder, count, all: Vec::new(), server })
    }

    /// How many there are.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Which one a GitSync follows.
    pub const fn of(&self, sync: usize) -> usize {
        sync % self.count
    }

    /// Its URL.
    pub fn url(&self, sync: usize) -> String {
        self.server.url(&format!("{FOLDER}/{}.git", self.of(sync)))
    }

    /// Makes them, with the agents of so many GitSyncs, each of which has so many agents. Gives the commit of each.
    pub fn fill(&mut self, fleet: Fleet, syncs: usize, agents: usize) -> Vec<String> {
        let mut commits = Vec::new();
        for repository in 0..self.count {
            let repo = Repo::init(&self.folder.join(format!("{repository}.git")));
            let followers = (0..syncs).filter(|sync| self.of(*sync) == repository);
            let files: Vec<_> = followers
                .flat_map(|sync| sync * agents..(sync + 1) * agents)
                .map(|index| (fleet.path(index), fleet.document(index, 1)))
                .collect();
            commits.push(commit(&repo, &files));
            self.all.push(repo);
        }
        commits
    }

    /// Changes a file of the repository that a GitSync follows. Gives the commit.
    pub fn change(&self, sync: usize, file: (String, String)) -> String {
        commit(&self.all[self.of(sync)], &[file])
    }
}

fn commit(repo: &Repo, files: &[(String, String)]) -> String {
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    repo.commit("agents", &files)
}
