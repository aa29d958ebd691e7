//! How long to wait before trying again.

use std::time::Duration;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_mins(1);
/// What a gateway asks for is obeyed up to this.
const ASKED_LONGEST: Duration = Duration::from_mins(5);

/// The pause before try number `attempt` (1 is the first repeat): 1 s doubled each time, at most 60 s, of which
/// the upper half is random so that trackers refused together do not come back together; and never less than
/// the gateway asked for.
pub(super) fn pause(attempt: u32, asked: Option<Duration>, random: u32) -> Duration {
    between(FIRST, LONGEST, attempt, asked, random)
}

/// The same for whoever wants another first and longest pause.
pub(super) fn between(
    first: Duration,
    longest: Duration,
    attempt: u32,
    asked: Option<Duration>,
    random: u32,
) -> Duration {
    let full =
        first.saturating_mul(1u32.checked_shl(attempt.saturating_sub(1)).unwrap_or(u32::MAX)).min(longest);
    let jittered = full / 2 + (full / 2).mul_f64(f64::from(random) / f64::from(u32::MAX));
    jittered.max(asked.unwrap_or_default().min(ASKED_LONGEST))
}

/// Only spreads retries; without random numbers they are not spread.
pub(super) fn random() -> u32 {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes).map_or(u32::MAX, |()| u32::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_minute_and_obey_the_gateway() {
        let seconds = Duration::from_secs;
        for (attempt, asked, random, expected) in [
            (1, None, 0, Duration::from_millis(500)),
            (1, None, u32::MAX, seconds(1)),
            (2, None, u32::MAX, seconds(2)),
            (6, None, u32::MAX, seconds(32)),
            (7, None, u32::MAX, seconds(60)),
            (33, None, 0, seconds(30)),
            (u32::MAX, None, u32::MAX, seconds(60)),
            (1, Some(seconds(7)), 0, seconds(7)),
            (7, Some(seconds(7)), 0, seconds(30)),
            (1, Some(seconds(100_000)), 0, seconds(300)),
        ] {
            assert_eq!(pause(attempt, asked, random), expected, "{attempt} {asked:?} {random}");
        }
    }
}
