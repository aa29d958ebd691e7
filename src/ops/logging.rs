//! Logging: structured lines to stderr.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Whether a filter can be read, in env-filter syntax: `info`, or `info,tidegate::store=debug`.
///
/// A bare word that is no level would be read as the name of a module, and so silence everything.
pub fn check_filter(filter: &str) -> Result<(), String> {
    let misspelled = |part: &str| {
        let word = part.trim();
        word.is_empty() || (!word.contains(['=', '[']) && word.parse::<LevelFilter>().is_err())
    };
    if EnvFilter::try_new(filter).is_err() || filter.split(',').any(misspelled) {
        return Err(format!(
            "{filter:?} is no filter; write error, warn, info, debug, trace or off, or add module=level behind a comma"
        ));
    }
    Ok(())
}

/// Starts logging for the whole process: to stderr, coloured only where stderr is a terminal.
pub fn start(filter: &str) -> Result<(), String> {
    let filter = EnvFilter::try_new(filter).map_err(|error| error.to_string())?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        // A stderr that is gone, as after its terminal closed, must not end the thread that had something to say.
        .log_internal_errors(false)
        .finish()
        .try_init()
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_checked() {
        for good in ["info", "off", "warn,tidegate::store=debug", "TRACE"] {
            assert_eq!(check_filter(good), Ok(()), "{good}");
        }
        for bad in ["verbose", "", "info,", "info=loud", "tidegate=what", "a=b=c"] {
            assert!(check_filter(bad).is_err(), "{bad}");
        }
    }
}
