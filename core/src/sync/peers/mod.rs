//! The other GitSyncs of a namespace: what each wants, gives away and waits for.

pub mod bar;
pub mod consult;
pub mod dependencies;
pub mod hand_over;
pub mod offers;
pub mod view;
