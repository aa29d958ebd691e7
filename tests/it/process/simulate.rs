//! `tidegate simulate`: an honest gateway passes whatever happens to it, one with a planted fault does not.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use tidegate::domain::signature::spell_secret;
use tidegate::ops::config::environment;

use super::verify;
use crate::support::gateway::{
    BINARY, Done, Folder, Gateway, Running, TOKEN, command, configure, run, serve, tidegate, until,
};
use crate::support::tracker::FLEET_KEY;

const BAD_LINK: [&str; 7] = ["simulate", "--loss", "0.3", "--duplicate", "0.3", "--reorder", "0.3"];

/// `tidegate simulate` against a gateway, with its keys.
fn simulate(folder: &Folder, address: SocketAddr, more: &[&str]) -> Command {
    let url = format!("http://{address}");
    let arguments = [&BAD_LINK[..], &["--prefix", "sim", "--url", &url], more].concat();
    let mut simulate = tidegate(folder.path(), &arguments);
    simulate.env("TIDEGATE_FLEET_KEYS", spell_secret(FLEET_KEY)).env("TIDEGATE_READ_TOKENS", TOKEN);
    simulate
}

/// Whether there were so many uploads, also where the gateway is about to go.
fn had_uploads(gateway: &Gateway, wanted: f64) {
    let mut link = gateway.link();
    until("uploads", || {
        (link.metric("tidegate_uploads_total{outcome=\"processed\"}") >= wanted).then_some(())
    });
}

/// The number in front of some words of a report.
fn number_before(report: &str, words: &str) -> u64 {
    let before = report.split(words).next().filter(|before| before.len() < report.len());
    let number = before.and_then(|before| before.split([' ', ',', '\n']).rfind(|word| !word.is_empty()));
    number
        .and_then(|number| number.parse().ok())
        .unwrap_or_else(|| panic!("no number of {words:?}: {report}"))
}

fn expect_agreement(done: &Done) {
    assert_eq!((done.code, done.out.lines().last()), (Some(0), Some("no differences")), "{done:?}");
}

#[test]
fn an_honest_gateway_agrees_with_the_ledger() {
    let folder = Folder::new();
    let gateway = Gateway::start(&folder);
    let more = ["--seed", "7", "--devices", "30", "--batches", "60", "--interval", "0"];
    let done = run(&mut simulate(&folder, gateway.address, &more));
    expect_agreement(&done);
    assert!(done.out.starts_with("seed 7, devices sim-000 to sim-029\n"), "{}", done.out);
    for (words, least) in [
        (" uploads:", 1800),
        (" requests lost", 100),
        (" answers lost", 100),
        (" retried", 100),
        (" copies", 100),
        (" held back", 100),
        (" made,", 5000),
        (" processed", 500),
        (" duplicate", 100),
        (" states on the way", 50),
        (" records at the end", 5000),
    ] {
        assert!(number_before(&done.out, words) >= least, "{words}: {}", done.out);
    }
    assert_eq!(number_before(&done.out, " attempts really failed"), 0, "{}", done.out);
    verify(&folder);
    // The same devices once more: their ledger would be wrong.
    let done = run(&mut simulate(&folder, gateway.address, &more));
    let expected = "tidegate: the gateway knows a device sim-000 already: choose another --prefix\n";
    assert_eq!((done.code, done.err.as_str()), (Some(1), expected));
}

#[test]
fn a_live_fleet_may_begin_with_a_past() {
    let folder = Folder::new();
    let gateway = Gateway::start(&folder);
    let more = ["--seed", "3", "--devices", "4", "--live", "--history", "24h"];
    let done = run(&mut simulate(
        &folder,
        gateway.address,
        &[&more[..], &["--duration", "2s", "--interval", "0.5"]].concat(),
    ));
    expect_agreement(&done);
    let mut link = gateway.link();
    for index in 0..4 {
        let track = link.track(&format!("sim-{index:03}"));
        // A record each ten minutes of a day, and some of now. Some clocks are wrong, and some keys stand twice.
        assert!(track.len() > 120, "{}", track.len());
        let at = |record: &serde_json::Value| record["recorded_at"].as_str().map(str::to_owned);
        let days: std::collections::BTreeSet<_> = track
            .iter()
            .filter_map(at)
            .map(|at| at[..10].to_owned())
            .filter(|day| ("2026".."2090").contains(&day.as_str()))
            .collect();
        assert!(days.len() >= 2, "yesterday and today: {days:?}");
    }
    verify(&folder);
}

#[test]
fn a_run_that_ends_before_anything_was_sent_agrees() {
    let folder = Folder::new();
    let gateway = Gateway::start(&folder);
    let done = run(&mut simulate(&folder, gateway.address, &["--devices", "5", "--batches", "0"]));
    expect_agreement(&done);
}

/// Kills a gateway again and again while a fleet uploads, each time after so many uploads, and starts another one in
/// its place.
fn simulate_with_kills(folder: &Folder, gateway: &dyn Fn() -> Command, kills: usize, uploads: f64) -> Done {
    let mut alive = Gateway::start_with(&mut gateway());
    let address = alive.address;
    let more = ["--seed", "11", "--devices", "30", "--batches", "60", "--interval", "0"];
    let fleet = Running::start(&mut simulate(folder, address, &more));
    for _ in 0..kills {
        had_uploads(&alive, uploads);
        alive.kill_nine();
        alive = Gateway::start_with(gateway().env("TIDEGATE_LISTEN", address.to_string()));
    }
    fleet.ended()
}

#[test]
fn an_honest_gateway_may_be_killed_in_mid_run() {
    let folder = Folder::new();
    let done = simulate_with_kills(&folder, &|| serve(&folder), 3, 200.0);
    expect_agreement(&done);
    assert!(number_before(&done.out, " attempts really failed") > 0, "{}", done.out);
    verify(&folder);
}

#[test]
fn it_ends_in_good_order_when_told_to() {
    let folder = Folder::new();
    let gateway = Gateway::start(&folder);
    let more = ["--live", "--devices", "8", "--interval", "0.02"];
    let fleet = Running::start(&mut simulate(&folder, gateway.address, &more));
    had_uploads(&gateway, 100.0);
    fleet.terminate();
    let done = fleet.ended();
    expect_agreement(&done);
    assert!(done.err.contains("stopping: what waits is delivered and compared"), "{}", done.err);
}

#[test]
fn what_cannot_work_fails_at_once_and_says_why() {
    let folder = Folder::new();
    let gateway = Gateway::start(&folder);
    let nobody = "127.0.0.1:1".parse().expect("an address");
    for (address, more, why) in [
        (nobody, [].as_slice(), "tidegate: cannot reach http://127.0.0.1:1: "),
        (
            gateway.address,
            &["--token", "another-token-of-somebody"],
            "tidegate: the gateway refuses the read token (401)",
        ),
        (
            gateway.address,
            &["--fleet-key", "not the key of this fleet", "--token", TOKEN],
            "tidegate: the gateway refuses the signature of sim-",
        ),
    ] {
        let done = run(&mut simulate(&folder, address, more));
        assert!(done.code == Some(1) && done.err.starts_with(why), "{done:?}");
    }
    let mut without = simulate(&folder, gateway.address, &[]);
    let done = run(without.env_remove("TIDEGATE_READ_TOKENS"));
    assert!(done.code == Some(2) && done.err.starts_with("tidegate: read_tokens: is neither"), "{done:?}");
}

/// Builds a gateway with a planted fault. It gets an artefact of its own, and only this crate is built anew: its
/// dependencies are those of the tests.
fn planted(name: &str, feature: &str) -> PathBuf {
    let target = Path::new(BINARY).ancestors().nth(2).expect("the binary is in target/debug");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR")).args(["build", "--offline", "--locked", "--example", name]);
    // What cargo tells a test about its package must not reach another cargo: build scripts of dependencies watch it,
    // and would be run anew each time.
    let of_package = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in environment().filter(|(name, _)| name.to_str().is_some_and(of_package)) {
        cargo.env_remove(name);
    }
    cargo.args(["--features", feature, "--target-dir"]).arg(target);
    let built = cargo.output().expect("cargo runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    target.join("debug/examples").join(name)
}

/// `serve` of such a gateway.
fn serve_planted(binary: &Path, folder: &Folder) -> Command {
    let mut serve = command(binary, folder.path());
    configure(serve.arg("serve"), &folder.database());
    serve
}

/// Exit code 1, and a difference that names device and key and holds these words.
fn expect_difference(done: &Done, words: &str) {
    assert_eq!(done.code, Some(1), "{done:?}");
    let names_a_key = |line: &&str| line.starts_with("device sim-") && line.contains(" at epoch ");
    let found = done.out.lines().filter(names_a_key).any(|line| line.contains(words));
    assert!(found, "nothing says {words:?}: {}", done.out);
    assert!(number_before(&done.out, " difference") > 0, "{}", done.out);
}

#[test]
fn a_gateway_where_equal_wins_is_found_out() {
    let binary = planted("tidegate-equal-wins", "fault-equal-wins");
    let folder = Folder::new();
    let gateway = Gateway::start_with(&mut serve_planted(&binary, &folder));
    let more = ["--seed", "3", "--devices", "10", "--batches", "40", "--interval", "0"];
    let done = run(&mut simulate(&folder, gateway.address, &more));
    expect_difference(&done, ": lat is ");
    expect_difference(&done, ": battery is ");
    assert!(!done.out.contains("missing from the track"), "nothing is lost: {}", done.out);
}

#[test]
fn a_gateway_that_answers_before_it_commits_is_found_out() {
    let binary = planted("tidegate-early-answer", "fault-early-answer");
    let folder = Folder::new();
    let done = simulate_with_kills(&folder, &|| serve_planted(&binary, &folder), 3, 60.0);
    expect_difference(&done, "acknowledged, but the state read afterwards is at ");
    expect_difference(&done, "acknowledged, but missing from the track");
}
