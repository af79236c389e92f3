//! AgentBuild: makes an image on Tekton whenever a commit changes what goes into it.
