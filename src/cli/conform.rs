//! `tidegate conform`: the cases of `fixtures/cases/` against any running gateway.

mod case;
mod ids;
mod judge;
mod run;
mod tap;
mod wire;

use std::path::PathBuf;

use clap::Args;

use self::case::{Case, Upload};
use self::run::{Gone, Runner};
use self::tap::Report;
use self::wire::Wire;
use super::keys::{FleetKeyFlag, Hidden};
use super::settings::StoreSettings;
use super::web::Trust;
use super::{Failure, Terminal};
use crate::ops::tokens::Role;

const EXAMPLES: &str = "\
Plays the cases that the binary brings along, or those of --cases, against the gateway at URL, and prints a report in
TAP version 14 to stdout: a line a case, under each failed one the request, what was expected and what came.

Uploads are signed with keys derived from the fleet key: --fleet-key, or else as `tidegate send` finds it. States and
tracks are read with --token, epochs reset with --admin-token; where they are not given they are the first of the
configuration's read_tokens and admin_tokens, unless --fleet-key says that the gateway is another one. Steps that
need a token which is not there are counted as not checked.

Every run gives the devices of its cases fresh ids, so a gateway can be checked again and again; what it stores stays
there. A case whose ids cannot be changed is skipped where the gateway knows them.

Exits 0 when no case failed, 1 otherwise or where the gateway cannot be checked at all, 2 on wrong usage.

Examples:
  tidegate conform http://127.0.0.1:8080
  tidegate conform https://gateway.example --fleet-key whsec_… --token … --strict
  tidegate conform http://127.0.0.1:8080 --case \"no fix\"
  tidegate conform --list";

/// Check a running gateway, this or another one, against the contract's cases
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Conform {
    /// The gateway, without a path
    #[arg(required_unless_present = "list")]
    url: Option<String>,
    #[command(flatten)]
    trust: Trust,
    #[command(flatten)]
    fleet_key: FleetKeyFlag,
    /// Token to read states and tracks with; the list of processes shows it, so better configure it
    #[arg(long, value_name = "TOKEN")]
    token: Option<Hidden>,
    /// Token to reset epochs with
    #[arg(long, value_name = "TOKEN")]
    admin_token: Option<Hidden>,
    /// Only cases whose name or source holds this text, in any letter case
    #[arg(long, value_name = "TEXT")]
    case: Option<String>,
    /// Run the cases of this file instead, in the format of fixtures/cases/README.md; may be given several times
    #[arg(long, value_name = "FILE")]
    cases: Vec<PathBuf>,
    /// List the cases and their sources, and do nothing
    #[arg(long)]
    list: bool,
    /// Fail where a case was skipped or a step not checked
    #[arg(long)]
    strict: bool,
    /// Use the device ids as they are written: for a gateway that has seen none of them
    #[arg(long)]
    keep_ids: bool,
    #[command(flatten)]
    settings: StoreSettings,
}

pub(super) fn run(command: &Conform, terminal: &mut Terminal) -> Result<(), Failure> {
    let cases = command.chosen()?;
    let Some(url) = command.url.as_ref().filter(|_| !command.list) else {
        return list(&cases, terminal);
    };
    let runner = command.runner(url, terminal)?;
    let tag = tag()?;
    let mut report = Report::begin(cases.len(), terminal)?;
    if let Err(why) = probe(&runner, &tag) {
        return stop(&why, terminal);
    }
    for case in &cases {
        let named = ids::name(case, &tag, command.keep_ids);
        match runner.run(&named) {
            Ok(outcome) => report.add(case, &outcome, terminal)?,
            Err(Gone(why)) => return stop(&format!("the gateway cannot be reached: {why}"), terminal),
        }
    }
    report.end(terminal)?;
    if report.is_good(command.strict) { Ok(()) } else { Err(Failure::Told) }
}

fn stop(why: &str, terminal: &mut Terminal) -> Result<(), Failure> {
    tap::bail_out(why, terminal)?;
    Err(Failure::Failed(why.to_owned()))
}

fn list(cases: &[Case], terminal: &mut Terminal) -> Result<(), Failure> {
    for case in cases {
        terminal.print(&format!("{}  ({})", case.name, case.source))?;
    }
    Ok(())
}

impl Conform {
    fn chosen(&self) -> Result<Vec<Case>, Failure> {
        let mut cases = Vec::new();
        for file in &self.cases {
            let fault = |text: String| Failure::fault(file.display().to_string(), text);
            let text =
                std::fs::read_to_string(file).map_err(|error| fault(format!("cannot be read: {error}")))?;
            cases.extend(case::read(&text).map_err(fault)?);
        }
        if self.cases.is_empty() {
            cases = case::built_in().map_err(Failure::Failed)?;
        }
        if let Some(wanted) = &self.case {
            let wanted = wanted.to_lowercase();
            cases.retain(|case| {
                [&case.name, &case.source].iter().any(|text| text.to_lowercase().contains(&wanted))
            });
        }
        if cases.is_empty() {
            Err(Failure::fault("--case", "names no case; --list shows them"))
        } else {
            Ok(cases)
        }
    }

    /// Tokens of the configuration are of the configured gateway: with a key from elsewhere they stay here.
    fn runner(&self, url: &str, terminal: &Terminal) -> Result<Runner, Failure> {
        let wire = Wire::new(url, &self.trust)?;
        let key = self.fleet_key.resolve(&self.settings, terminal)?;
        let given = |token: &Option<Hidden>| token.as_ref().map(|Hidden(text)| text.clone());
        let (mut read_token, mut admin_token) = (given(&self.token), given(&self.admin_token));
        if !self.fleet_key.is_given() {
            let loaded = self.settings.load(terminal)?;
            let found = |role| loaded.secrets.first_token(role, loaded.config.data_dir());
            if admin_token.is_none() {
                admin_token = found(Role::Admin)?;
            }
            if read_token.is_none() {
                read_token = found(Role::Read)?;
            }
        }
        // An admin token reads, too.
        read_token = read_token.or_else(|| admin_token.clone());
        Ok(Runner { wire, key, read_token, admin_token })
    }
}

/// What tells this run's devices from those of all others.
fn tag() -> Result<String, Failure> {
    const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::Failed(format!("no random numbers to be had: {error}")))?;
    Ok(bytes.iter().map(|byte| char::from(DIGITS[usize::from(byte % 32)])).collect())
}

/// A heartbeat first: with the wrong key, or at the wrong address, every case would fail for the same reason.
fn probe(runner: &Runner, tag: &str) -> Result<(), String> {
    let device = format!("conform-{tag}");
    let answer = runner
        .heartbeat(&Upload::heartbeat(&device))
        .map_err(|Gone(why)| format!("the gateway cannot be reached: {why}"))?;
    match answer.status {
        401 => {
            return Err(format!(
                "the gateway does not take what is signed with the fleet key of fingerprint {}: it is another gateway's \
                 key, or the gateway derives device keys in another way ({answer})",
                runner.key.fingerprint()
            ));
        }
        200 | 202 if answer.body.is_empty() => {
            return Err("the gateway answers every upload without a body (minimal_answers), so there is nothing to judge"
                .to_owned());
        }
        200 | 202 => {}
        _ => return Err(format!("a heartbeat is not taken, so there is nothing to check: {answer}")),
    }
    let state = runner.read_state(&device).map_err(|Gone(why)| why)?;
    match state {
        Some(answer) if matches!(answer.status, 401 | 403) => {
            Err(format!("the gateway refuses the read token ({answer})"))
        }
        _ => Ok(()),
    }
}
