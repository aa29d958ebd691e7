//! File descriptors: every connection takes one, and the kernel grants a process only so many.

use rustix::process::{Resource, getrlimit, setrlimit};

/// What the gateway holds open besides connections: the database's files for the writer and up to 64 readers
/// (two each), the listener, the runtime's own, the standard streams, some to spare.
const RESERVE: u64 = 192;

/// How many of `connections` this process can hold at once: all of them, after raising its own limit as far as
/// that needs and the kernel lets it, or fewer. Without the bound the store could find none left for itself.
pub fn make_room(connections: usize) -> usize {
    let wanted = u64::try_from(connections).unwrap_or(u64::MAX);
    let needed = wanted.saturating_add(RESERVE);
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < needed) {
        let raised = limit.maximum.map_or(needed, |maximum| maximum.min(needed));
        let asked = rustix::process::Rlimit { current: Some(raised), ..limit };
        // Where that is refused, the old limit stays and is what counts.
        if setrlimit(Resource::Nofile, asked).is_ok() {
            limit = asked;
        }
    }
    usize::try_from(fitting(wanted, limit.current)).unwrap_or(connections)
}

/// How many connections fit under a limit, at least one.
fn fitting(wanted: u64, limit: Option<u64>) -> u64 {
    // With a tiny limit half of it must do for the rest.
    limit.map_or(wanted, |limit| wanted.min(limit.saturating_sub(RESERVE.min(limit / 2))).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_room_for_the_store() {
        for (wanted, limit, fits) in [
            (16_384, None, 16_384),
            (16_384, Some(16_576), 16_384),
            (16_384, Some(16_575), 16_383),
            (16_384, Some(1024), 832),
            (100, Some(1024), 100),
            (16_384, Some(256), 128),
            (16_384, Some(0), 1),
        ] {
            assert_eq!(fitting(wanted, limit), fits, "{wanted} under {limit:?}");
        }
    }
}
