//! `tidegate verify`: the law over a whole database.

use clap::Args;

use super::settings::StoreSettings;
use super::{Failure, Terminal};
use crate::store::{Verification, open};

const EXAMPLES: &str = "\
Checks for each device that its current state equals the greatest ordering key among its counting entries, its
position that of the greatest one with a fix, and that the books agree. Reads only, also while the gateway runs.
Prints what it checked and one line a difference; exits 1 where there is any.

Examples:
  tidegate verify
  tidegate verify --store sqlite:/restored/tidegate.db";

/// Devices between two lines of progress: writing to a terminal costs more than checking a small device.
const PROGRESS_STEP: u64 = 64;

/// Check the law over the whole database, device by device, while the gateway runs
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Verify {
    #[command(flatten)]
    settings: StoreSettings,
}

pub(super) fn run(command: &Verify, terminal: &mut Terminal) -> Result<(), Failure> {
    let config = command.settings.load(terminal)?.config;
    let store = open::open_read_only(&config.store, &config.store_options)?;
    let verification = store.verify(&mut |done, all| {
        if done % PROGRESS_STEP == 0 || done == all {
            terminal.progress(&format!("{done} of {all} devices"));
        }
    });
    terminal.progress_done();
    let verification = verification?;
    for difference in &verification.differences {
        terminal.print(difference)?;
    }
    terminal.print(&summary(&verification))?;
    if verification.difference_count == 0 { Ok(()) } else { Err(Failure::Told) }
}

fn summary(checked: &Verification) -> String {
    let Verification { devices, entries, spans, batches, quarantined, difference_count, .. } = checked;
    let told = u64::try_from(checked.differences.len()).unwrap_or(u64::MAX);
    let result = match *difference_count {
        0 => "no differences".to_owned(),
        1 => "1 difference".to_owned(),
        n if n > told => format!("{n} differences, of which the first {told} are listed"),
        n => format!("{n} differences"),
    };
    format!(
        "checked {devices} devices, {entries} entries, {spans} spans, {batches} batches, {quarantined} quarantined: \
         {result}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_says_what_was_checked() {
        let mut checked = Verification { devices: 1, entries: 2, spans: 3, ..Verification::default() };
        let head = "checked 1 devices, 2 entries, 3 spans, 0 batches, 0 quarantined: ";
        assert_eq!(summary(&checked), format!("{head}no differences"));
        checked.differences = vec![String::new()];
        checked.difference_count = 1;
        assert_eq!(summary(&checked), format!("{head}1 difference"));
        checked.difference_count = 5;
        assert_eq!(summary(&checked), format!("{head}5 differences, of which the first 1 are listed"));
    }
}
