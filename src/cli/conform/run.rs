//! Runs cases against one gateway.

use super::case::{Case, Step, Upload};
use super::ids::Named;
use super::judge::{self, Mismatch};
use super::wire::{Answer, NoAnswer, Request, Wire};
use crate::domain::signature::FleetKey;

/// One gateway, and what opens its doors.
pub(super) struct Runner {
    pub(super) wire: Wire,
    pub(super) key: FleetKey,
    /// Without one nothing can be read back.
    pub(super) read_token: Option<String>,
    /// Without one no epoch can be reset.
    pub(super) admin_token: Option<String>,
}

/// How a case went.
#[derive(Debug)]
pub(super) enum Outcome {
    /// Every step that could be checked came out right; so many could not be.
    Passed { unchecked: usize },
    /// A step came out wrong.
    Failed(Box<FailedStep>),
    /// It could not be run, or not to its end.
    Skipped(String),
}

#[derive(Debug)]
pub(super) struct FailedStep {
    /// From 1.
    pub(super) step: usize,
    pub(super) request: String,
    pub(super) mismatch: Mismatch,
}

/// There is nobody to go on with.
#[derive(Debug)]
pub(super) struct Gone(pub(super) String);

enum Stepped {
    Right,
    Unchecked,
    Wrong(Box<FailedStep>),
    Stop(String),
}

impl Runner {
    /// Runs a case up to its first wrong step: what follows builds on it.
    pub(super) fn run(&self, named: &Named) -> Result<Outcome, Gone> {
        for id in &named.kept {
            if let Some(why) = self.known(id)? {
                return Ok(Outcome::Skipped(why));
            }
        }
        if let Some(why) = self.lacks(&named.case) {
            return Ok(Outcome::Skipped(why));
        }
        let mut unchecked = 0;
        for (at, step) in (1..).zip(&named.case.steps) {
            match self.step(at, step)? {
                Stepped::Right => {}
                Stepped::Unchecked => unchecked += 1,
                Stepped::Wrong(failed) => return Ok(Outcome::Failed(failed)),
                Stepped::Stop(why) => return Ok(Outcome::Skipped(why)),
            }
        }
        Ok(Outcome::Passed { unchecked })
    }

    /// Uploads a batch without records: whether this gateway takes what is signed with our key.
    pub(super) fn heartbeat(&self, upload: &Upload) -> Result<Answer, Gone> {
        self.wire.exchange(&Request::upload(upload, &self.key)).map_err(|none| Gone(none.text))
    }

    /// Reads a device's state; `None` without a token.
    pub(super) fn read_state(&self, device: &str) -> Result<Option<Answer>, Gone> {
        let Some(token) = &self.read_token else { return Ok(None) };
        let answer = self.wire.exchange(&Request::get(format!("/v1/devices/{device}"), token));
        answer.map(Some).map_err(|none| Gone(none.text))
    }

    /// Why a case whose ids cannot be changed must not be run here; `None`: the device is new.
    fn known(&self, id: &str) -> Result<Option<String>, Gone> {
        let Some(answer) = self.read_state(id)? else {
            return Ok(Some(format!("whether device {id} is new to this gateway needs a read token")));
        };
        Ok(match answer.status {
            404 => None,
            200 if answer.json()["last_seq"].is_null() => None,
            200 => Some(format!("device {id} is known to this gateway; use a fresh one")),
            status => {
                Some(format!("whether device {id} is new to this gateway cannot be told: status {status}"))
            }
        })
    }

    /// What a case needs and this run does not have.
    fn lacks(&self, case: &Case) -> Option<String> {
        let resets = case.steps.iter().any(|step| matches!(step, Step::Reset { .. }));
        (resets && self.admin_token.is_none()).then(|| "a reset needs an admin token".to_owned())
    }

    fn step(&self, at: usize, step: &Step) -> Result<Stepped, Gone> {
        match step {
            Step::Upload(upload) => {
                let request = Request::upload(upload, &self.key);
                self.judged(at, &request, |answer| judge::answer(answer, &upload.expect))
            }
            Step::State { device, status, expect } => {
                self.read(at, format!("/v1/devices/{device}"), |answer| judge::state(answer, status, expect))
            }
            Step::Track { device, expect } => {
                let path = format!("/v1/devices/{device}/track?format=json");
                self.read(at, path, |answer| judge::track(answer, expect))
            }
            Step::Reset { device, body, expect } => {
                let Some(token) = &self.admin_token else {
                    return Ok(Stepped::Stop("a reset needs an admin token".to_owned()));
                };
                let request = Request::post(format!("/v1/admin/devices/{device}/epoch"), body, token);
                self.judged_or_missing(at, &request, |answer| judge::answer(answer, expect))
            }
        }
    }

    fn read(
        &self,
        at: usize,
        path: String,
        judge: impl FnOnce(&Answer) -> Result<(), Mismatch>,
    ) -> Result<Stepped, Gone> {
        match &self.read_token {
            None => Ok(Stepped::Unchecked),
            Some(token) => self.judged(at, &Request::get(path, token), judge),
        }
    }

    fn judged(
        &self,
        at: usize,
        request: &Request,
        judge: impl FnOnce(&Answer) -> Result<(), Mismatch>,
    ) -> Result<Stepped, Gone> {
        let judged = match self.wire.exchange(request) {
            Ok(answer) => judge(&answer),
            Err(NoAnswer { text, unreachable: true }) => return Err(Gone(text)),
            Err(NoAnswer { text, .. }) => {
                Err(Mismatch { expected: "an answer".to_owned(), got: format!("none: {text}") })
            }
        };
        Ok(match judged {
            Ok(()) => Stepped::Right,
            Err(mismatch) => {
                Stepped::Wrong(Box::new(FailedStep { step: at, request: request.to_string(), mismatch }))
            }
        })
    }

    /// The same for a route that a gateway need not have.
    fn judged_or_missing(
        &self,
        at: usize,
        request: &Request,
        judge: impl FnOnce(&Answer) -> Result<(), Mismatch>,
    ) -> Result<Stepped, Gone> {
        let mut refused = None;
        let stepped = self.judged(at, request, |answer| {
            refused = match answer.status {
                404 | 405 => Some("this gateway has no route to reset an epoch"),
                401 | 403 => Some("the admin token is refused"),
                _ => None,
            };
            if refused.is_some() { Ok(()) } else { judge(answer) }
        })?;
        Ok(refused.map_or(stepped, |why| Stepped::Stop(why.to_owned())))
    }
}
