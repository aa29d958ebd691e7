//! The tracker in Python, under `MicroPython`: its WebAssembly build, with the socket in node.

use std::collections::BTreeMap;

use super::delivery::{PATIENCE, Sea, key};
use super::{course, source};
use crate::support::gateway::{command, run_within};

#[test]
fn delivers_through_a_bad_link() {
    let sea = Sea::new();
    // A copy, so that nothing is installed among the sources.
    let here = sea.folder.path().join("micropython");
    std::fs::create_dir(&here).expect("created");
    for name in ["package.json", "package-lock.json", ".npmrc", "run.mjs", "link.mjs"] {
        std::fs::copy(source("python/micropython").join(name), here.join(name)).expect("copied");
    }
    std::fs::copy(source("python/tidegate_tracker.py"), sea.folder.path().join("tidegate_tracker.py"))
        .expect("copied");
    let mut npm = command("npm", &here);
    keep_npm_configuration(&mut npm);
    let done = run_within(PATIENCE, npm.args(["ci", "--no-audit", "--no-fund", "--no-update-notifier"]));
    assert_eq!(done.code, Some(0), "{}{}", done.out, done.err);
    let mut node = command("node", &here);
    node.arg("run.mjs").args([&sea.proxy.address.ip().to_string(), &sea.proxy.address.port().to_string()]);
    let done = run_within(PATIENCE, node.args(["ship-10", &key("ship-10"), "120"]));
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{}", done.out);
    assert!(done.out.starts_with("micropython packs: True\n"), "{}", done.out);
    assert!(done.out.contains("\nepoch 11, ") && done.out.ends_with("\ncode 0\n"), "{}", done.out);
    course::check(&mut sea.link(), "ship-10", &BTreeMap::from([(11, 120)]));
    let books = sea.check_uploads();
    assert!(books.bodies.iter().any(|body| body[0] == 0x78), "compressed");
    assert!(books.requests_lost + books.answers_lost > 0, "the link was not bad: {books:?}");
}

/// npm finds its registry and its cache by its user's and the machine's configuration.
fn keep_npm_configuration(npm: &mut std::process::Command) {
    #[expect(clippy::disallowed_methods, reason = "for another program, not for this one")]
    let inherited = std::env::vars_os().filter(|(name, _)| {
        let name = name.to_string_lossy().to_ascii_lowercase();
        name == "home"
            || name.starts_with("npm_config_")
            || name.ends_with("_proxy")
            || name.starts_with("node_")
    });
    npm.envs(inherited);
}
