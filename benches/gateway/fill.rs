//! Fills a database through the store itself, so that it is one the gateway could have written.

use std::io::Write as _;
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::time::Instant;

use bytes::Bytes;
use tidegate::domain::batch::Limits;
use tidegate::domain::signature::{FleetKey, read_signatures, verify};
use tidegate::domain::time::Timestamp;
use tidegate::domain::upload::Upload;
use tidegate::store::{StoreOptions, StoreUrl, open};

use crate::Outcome;
use crate::requests::{BATCH_RECORDS, Device};
use crate::support::FLEET_KEY;

/// Uploads of one transaction.
const GROUP: u64 = 512;
/// 2026-01-01T00:00:00Z, when the first of them arrived.
const ARRIVED_FROM: i64 = 1_767_225_600;

/// Adds that many rows, spread over the fleet in turn.
pub(crate) fn fill(path: &Path, fleet: &mut [Device], rows: u64) -> Outcome<()> {
    let key = FleetKey::new(FLEET_KEY.as_bytes());
    let store = open::open(&StoreUrl::Sqlite(path.to_owned()), &StoreOptions::default())?;
    store.adopt_fleet_keys(&[key.fingerprint()])?;
    let groups = rows.div_ceil(GROUP * u64::from(BATCH_RECORDS));
    let begun = Instant::now();
    let (made, groups_made) = sync_channel::<Vec<Upload>>(4);
    std::thread::scope(|scope| -> Outcome<()> {
        let committer = scope.spawn(move || -> Result<(), String> {
            for (done, group) in (1_u64..).zip(groups_made) {
                for result in store.commit_uploads(&group) {
                    result.map_err(|error| error.to_string())?;
                }
                store.maintain().map_err(|error| error.to_string())?;
                if done.is_multiple_of(200) {
                    let _ = write!(std::io::stderr(), "\rfilling: {} %", 100 * done / groups);
                }
            }
            Ok(())
        });
        let mut turn = (0..fleet.len()).cycle();
        for group in 0..groups {
            let places: Vec<usize> = turn.by_ref().take(GROUP.try_into()?).collect();
            let received_at =
                Timestamp::from_seconds(ARRIVED_FROM + i64::try_from(group)?).ok_or("a time")?;
            let uploads = places.into_iter().map(|place| upload(&mut fleet[place], &key, received_at));
            // A committer that failed no longer takes any; it says why.
            if made.send(uploads.collect::<Outcome<_>>()?).is_err() {
                break;
            }
        }
        drop(made);
        committer.join().map_err(|_| "the committing thread panicked")??;
        Ok(())
    })?;
    let _ =
        writeln!(std::io::stderr(), "\rfilled with {rows} rows in {:.0} s", begun.elapsed().as_secs_f64());
    Ok(())
}

fn upload(device: &mut Device, key: &FleetKey, received_at: Timestamp) -> Outcome<Upload> {
    let (batch, body, signature) = device.signed_batch();
    let offered = read_signatures([signature.as_bytes()]);
    let keys = std::slice::from_ref(key);
    let verified = verify(keys, Some(&batch.device_id), false, &offered, Bytes::from(body));
    Ok(Upload::read(verified.ok_or("the signature does not hold")?, received_at, &Limits::default()))
}
