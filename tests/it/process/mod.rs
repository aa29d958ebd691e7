//! The binary as others run it: killed, stopped, out of space, started twice.

mod crash;

use crate::support::gateway::{Folder, run, tidegate};

/// `tidegate verify`, also while the gateway runs: no differences.
fn verify(folder: &Folder) {
    let store = format!("sqlite:{}", folder.database().display());
    let done = run(&mut tidegate(folder.path(), &["verify", "--store", &store]));
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{}", done.out);
    assert!(done.out.starts_with("checked ") && done.out.ends_with(": no differences\n"), "{}", done.out);
}
