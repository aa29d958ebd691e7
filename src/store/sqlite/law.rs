//! The law from the log: what a device's current state must be. Used where a mark changed; `verify` folds the
//! whole history instead, so that the two check each other.

use rusqlite::Connection;

use super::walk;
use crate::domain::ids::{EpochId, Key, Seq};
use crate::domain::span;
use crate::domain::state::{Position, State};
use crate::store::StoreError;

/// The greatest counting entry, with the position of the greatest one that has a fix. Reads from the newest
/// entry down and stops as soon as it has both.
pub(super) fn state_by_law(conn: &Connection, device_ref: i64) -> Result<Option<State>, StoreError> {
    let mut state = None;
    for epoch_id in walk::epochs_down(conn, device_ref)? {
        let mut to = Some(Seq::MAX);
        while let Some(window) =
            to.map(|to| walk::window_down(conn, device_ref, epoch_id, to)).transpose()?.flatten()
        {
            for entry in walk::counting_entries(conn, device_ref, epoch_id, window)? {
                let entry = entry?;
                let key = Key { epoch_id, seq: entry.record.seq };
                State::fold(&mut state, key, &entry.record, entry.received_at);
            }
            if state.is_some_and(|state: State| state.position.is_some()) {
                return Ok(state);
            }
            to = window.first.get().checked_sub(1).and_then(Seq::new);
        }
    }
    Ok(state)
}

/// The same after entries of one epoch, with these seqs (sorted), were added or lost their mark. What cannot
/// have changed is taken from the state before, so that the cost does not grow with the history: a device
/// that never had a fix would otherwise have all of it read by the writer.
pub(super) fn state_after(
    conn: &Connection,
    device_ref: i64,
    before: Option<State>,
    epoch_id: EpochId,
    seqs: &[Seq],
) -> Result<Option<State>, StoreError> {
    let shown = before.and_then(|before| before.position);
    let (mut state, mut displaced) = (None, false);
    for range in span::cut(seqs.iter().map(|seq| (*seq, None))) {
        let window = walk::Window { first: range.seq_first, last: range.seq_last };
        for entry in walk::counting_entries(conn, device_ref, epoch_id, window)? {
            let entry = entry?;
            let key = Key { epoch_id, seq: entry.record.seq };
            State::fold(&mut state, key, &entry.record, entry.received_at);
            // Another content of the position's key came first and has no fix.
            displaced |= shown.is_some_and(|shown| shown.key == key) && entry.record.fix.is_none();
        }
    }
    let greater = |position: Position| shown.is_some_and(|shown| position.key > shown.key);
    if displaced && !state.and_then(|state| state.position).is_some_and(greater) {
        return state_by_law(conn, device_ref);
    }
    let (Some(before), Some(read)) = (before, state) else { return Ok(state.or(before)) };
    // Where keys are equal, what was read just now is what holds.
    let mut after = if before.key > read.key { before } else { read };
    after.position = match (shown, read.position) {
        (Some(shown), Some(read)) if shown.key > read.key => Some(shown),
        (shown, read) => read.or(shown),
    };
    Ok(Some(after))
}
