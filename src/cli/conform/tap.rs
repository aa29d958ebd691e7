//! The report, as TAP version 14 (testanything.org): a line a case that a person and a CI server both read.

use super::super::Terminal;
use super::case::Case;
use super::run::{FailedStep, Outcome};

/// Prints the outcomes and counts them.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) passed: usize,
    pub(super) failed: usize,
    pub(super) skipped: usize,
    /// Steps that nobody looked at, in cases that passed otherwise.
    pub(super) unchecked: usize,
}

impl Report {
    pub(super) fn begin(cases: usize, terminal: &mut Terminal) -> std::io::Result<Self> {
        terminal.print("TAP version 14")?;
        terminal.print(&format!("1..{cases}"))?;
        Ok(Self::default())
    }

    /// A case and how it went; its number is that of the lines so far.
    pub(super) fn add(
        &mut self,
        case: &Case,
        outcome: &Outcome,
        terminal: &mut Terminal,
    ) -> std::io::Result<()> {
        match outcome {
            Outcome::Passed { unchecked } => {
                self.passed += 1;
                self.unchecked += unchecked;
            }
            Outcome::Failed(_) => self.failed += 1,
            Outcome::Skipped(_) => self.skipped += 1,
        }
        let at = self.passed + self.failed + self.skipped;
        let name = escape(&case.name);
        match outcome {
            Outcome::Passed { unchecked: 0 } => terminal.print(&format!("ok {at} - {name}")),
            Outcome::Passed { unchecked } => {
                terminal.print(&format!("ok {at} - {name}"))?;
                terminal.print(&format!(
                    "# steps of it that were not checked, for want of a read token: {unchecked}"
                ))
            }
            Outcome::Skipped(why) => terminal.print(&format!("ok {at} - {name} # SKIP {}", escape(why))),
            Outcome::Failed(failed) => {
                terminal.print(&format!("not ok {at} - {name}"))?;
                diagnosis(case, failed).iter().try_for_each(|line| terminal.print(line))
            }
        }
    }

    /// The closing line.
    pub(super) fn end(&self, terminal: &mut Terminal) -> std::io::Result<()> {
        let Self { passed, failed, skipped, unchecked } = self;
        terminal.print(&format!(
            "# {passed} passed, {failed} failed, {skipped} skipped; steps not checked: {unchecked}"
        ))
    }

    /// Whether every case came out right; `strict`: and was checked to its end.
    pub(super) fn is_good(&self, strict: bool) -> bool {
        self.failed == 0 && !(strict && self.skipped + self.unchecked > 0)
    }
}

/// Says that the run ends here.
pub(super) fn bail_out(why: &str, terminal: &mut Terminal) -> std::io::Result<()> {
    terminal.print(&format!("Bail out! {}", why.replace(char::is_control, " ")))
}

/// A name as TAP takes it: `#` begins a directive, and a backslash escapes.
fn escape(text: &str) -> String {
    text.replace(char::is_control, " ").replace('\\', "\\\\").replace('#', "\\#")
}

/// YAML: every value is a string of JSON, which YAML reads, or a block of lines.
fn diagnosis(case: &Case, failed: &FailedStep) -> Vec<String> {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let mut lines = vec![
        "  ---".to_owned(),
        format!("  source: {}", quoted(&case.source)),
        format!("  step: {} of {}", failed.step, case.steps.len()),
        format!("  expected: {}", quoted(&failed.mismatch.expected)),
        format!("  got: {}", quoted(&failed.mismatch.got)),
        "  request: |".to_owned(),
    ];
    lines.extend(failed.request.lines().map(|line| format!("    {}", line.replace(char::is_control, " "))));
    lines.push("  ...".to_owned());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_a_directive_is_escaped() {
        assert_eq!(escape("a # SKIP b\\c\nd"), "a \\# SKIP b\\\\c d");
    }

    #[test]
    fn strict_wants_every_step_checked() {
        let report = |failed, skipped, unchecked| Report { passed: 1, failed, skipped, unchecked };
        assert!(report(0, 0, 0).is_good(true));
        for (report, good) in [(report(1, 0, 0), false), (report(0, 1, 0), true), (report(0, 0, 1), true)] {
            assert_eq!((report.is_good(false), report.is_good(true)), (good, false), "{report:?}");
        }
    }
}
