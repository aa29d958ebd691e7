//! Progress: a bar where a person watches, a line now and then elsewhere.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::super::Terminal;
use super::tally::Tally;

const BAR_PERIOD: Duration = Duration::from_millis(200);
const LINE_PERIOD: Duration = Duration::from_secs(10);

pub(super) struct Show {
    bar: Option<ProgressBar>,
    duration: Option<Duration>,
}

impl Show {
    /// `duration`: how long records are made, if that is known.
    pub(super) fn new(terminal: &Terminal, duration: Option<Duration>) -> Self {
        let bar = terminal.watched.then(|| {
            let length = duration.map(millis);
            let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr());
            let template =
                if length.is_some() { "{elapsed} {bar:20} {msg}" } else { "{elapsed} {spinner} {msg}" };
            // A template of two constants: were it wrong, the default would do.
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar
        });
        Self { bar, duration }
    }

    pub(super) fn period(&self) -> Duration {
        if self.bar.is_some() { BAR_PERIOD } else { LINE_PERIOD }
    }

    pub(super) fn progress(&self, terminal: &mut Terminal, elapsed: Duration, tally: &Tally, devices: usize) {
        let line = tally.line(devices);
        let delivering = self.duration.is_some_and(|most| elapsed >= most);
        let done = tally.devices_done.get();
        let line = if delivering { format!("{line}; compared {done}") } else { line };
        match &self.bar {
            Some(bar) => {
                bar.set_position(millis(elapsed).min(bar.length().unwrap_or(u64::MAX)));
                bar.set_message(line);
            }
            None => terminal.tell(&format!("{:>5.0} s: {line}", elapsed.as_secs_f64())),
        }
    }

    /// Says something without tearing the bar.
    pub(super) fn say(&self, terminal: &mut Terminal, line: &str) {
        let line = format!("tidegate: {line}");
        match &self.bar {
            Some(bar) => bar.suspend(|| terminal.tell(&line)),
            None => terminal.tell(&line),
        }
    }

    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
