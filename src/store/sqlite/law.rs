//! The law from the log: what a device's current state must be. Used where a mark changed; `verify` folds the
//! whole history instead, so that the two check each other.

use rusqlite::Connection;

use super::walk;
use crate::domain::ids::{Key, Seq};
use crate::domain::state::State;
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
