//! The tracker in Python, under `CPython`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use super::delivery::{self, PATIENCE, Sea, deliver, key};
use super::{course, source};
use crate::support::gateway::{command, run_within};

fn tracker(here: &Path) -> Command {
    let mut python = command("python3", here);
    python.args(["-B", "-u", "-W", "error"]).arg(source("python/tidegate_tracker.py"));
    python
}

#[test]
fn its_parts_hold() {
    let mut python = command("python3", &source("python"));
    let done = run_within(PATIENCE, python.args(["-B", "-W", "error", "-m", "unittest", "-v"]));
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(
        done.err.contains("test_no_power_cut_loses_or_repeats") && done.err.ends_with("\nOK\n"),
        "{}",
        done.err
    );
}

#[test]
fn delivers_through_a_bad_link() {
    delivery::delivers_through_a_bad_link(tracker, 300);
}

#[test]
fn survives_kills() {
    delivery::survives_kills(tracker);
}

#[test]
fn begins_an_epoch_with_new_storage() {
    delivery::begins_an_epoch_with_new_storage(tracker);
}

#[test]
fn does_not_hammer_when_refused() {
    delivery::does_not_hammer_when_refused(tracker);
}

#[test]
fn compresses() {
    delivery::compresses(tracker);
}

/// Both trackers keep the same buffer: what one leaves in flight the other sends in the same bytes, with what follows.
#[test]
fn goes_on_where_the_tracker_in_c_was() {
    let built = super::c::folder();
    let in_c = super::c::starter(&built);
    let sail = |first: &dyn Fn(&Path) -> Command, second: &dyn Fn(&Path) -> Command| {
        let sea = Sea::calm();
        let options = ["--plain", "--batch", "20", "--slots", "64", "--epoch", "5"];
        let mut refused = first(sea.folder.path());
        sea.fit_out(&mut refused, "ship-9").args(options).args(["--make", "30", "--key", &key("nobody")]);
        let done = run_within(PATIENCE, &mut refused);
        assert_eq!(done.code, Some(3), "{}{}", done.out, done.err);
        let mut goes_on = second(sea.folder.path());
        deliver(sea.fit_out(&mut goes_on, "ship-9").args(options).args(["--make", "40"]));
        course::check(&mut sea.link(), "ship-9", &BTreeMap::from([(5, 40)]));
        let books = sea.proxy.books();
        assert_eq!(
            (books.requests, books.bodies.len()),
            (3, 2),
            "the batch in flight in the same bytes, and one more"
        );
    };
    sail(&in_c, &tracker);
    sail(&tracker, &in_c);
}

#[test]
fn says_why_it_cannot_start() {
    delivery::says_why_it_cannot_start(tracker);
}
