//! AgentBuild: makes an image on Tekton whenever a commit changes what goes into it.

pub mod key;
pub mod pipeline_run;
pub mod pod_policy;
pub mod template;
