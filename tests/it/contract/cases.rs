//! The given cases and our own, over real HTTP, with `tidegate conform`: inputs that broke systems like this one,
//! each with the right answer.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use tidegate::cli::{self, Terminal};
use tidegate::domain::signature::spell_secret;

use crate::http::harness::{FLEET_KEY, Gateway, NAMED_ADMIN_TOKEN, TOKEN};

/// Cases that need the reset of an epoch by ops, a route this gateway does not have yet.
const WAITING: [&str; 1] = ["late batch of the old counter after a reset is held"];

/// What was printed.
#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl Paper {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("unpoisoned").clone()).expect("text")
    }
}

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("unpoisoned").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// `tidegate conform` against this gateway: its exit code and its report.
fn conform(gateway: &Gateway, more: &[&str]) -> (ExitCode, String) {
    let (url, key) = (format!("http://{}", gateway.address), spell_secret(FLEET_KEY));
    let (_, admin_token) = NAMED_ADMIN_TOKEN.split_once(':').expect("a name");
    let mut arguments = vec!["tidegate", "conform", &url, "--fleet-key", &key, "--token", TOKEN];
    arguments.extend(["--admin-token", admin_token].iter().chain(more));
    let (out, err) = (Paper::default(), Paper::default());
    let mut terminal = Terminal::new(Vec::new(), ".".into(), Box::new(out.clone()), Box::new(err.clone()));
    let code = cli::run(arguments.into_iter().map(Into::into), &mut terminal);
    assert_eq!(err.text(), "", "{}", out.text());
    (code, out.text())
}

#[test]
fn every_case_comes_out_right() {
    let gateway = Gateway::start();
    let (code, report) = conform(&gateway, &["--keep-ids"]);
    assert_eq!(code, ExitCode::SUCCESS, "{report}");
    let skipped = report.lines().filter_map(|line| line.split_once(" # SKIP ")).map(|(case, _)| {
        let (_, name) = case.split_once(" - ").expect("a case");
        name
    });
    assert_eq!(skipped.collect::<Vec<_>>(), WAITING, "only what needs a reset may wait: {report}");
    assert!(report.ends_with(" 0 failed, 1 skipped; steps not checked: 0\n"), "{report}");
    let found = gateway.store.verify(&mut |_, _| {}).expect("verify runs");
    assert_eq!(found.differences, Vec::<String>::new());
    gateway.stop();
}

#[test]
fn ids_as_written_are_not_used_twice() {
    let gateway = Gateway::start();
    let one = ["--keep-ids", "--case", "leading zeros"];
    assert_eq!(conform(&gateway, &one).0, ExitCode::SUCCESS);
    let (code, report) = conform(&gateway, &one);
    assert_eq!(code, ExitCode::SUCCESS, "{report}");
    assert!(report.contains("# SKIP device 000270 is known to this gateway; use a fresh one\n"), "{report}");
    assert_eq!(conform(&gateway, &[&one[..], &["--strict"]].concat()).0, ExitCode::from(1));
    gateway.stop();
}
