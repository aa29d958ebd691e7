//! The fleet's uploads as ready bytes: made, signed and spelled as HTTP before the clock runs.

use tidegate::domain::batch::Batch;
use tidegate::domain::ids::EpochId;
use tidegate::domain::signature::{FleetKey, SIGNATURE_LEN, sign};
use tidegate::fleet::{Tracker, spell};

use crate::Outcome;
use crate::support::FLEET_KEY;

/// Records of each batch.
pub(crate) const BATCH_RECORDS: u32 = 20;

/// A device with its requests; those before `next` were sent.
#[derive(Clone)]
pub(crate) struct Device {
    pub(crate) tracker: Tracker,
    key: [u8; SIGNATURE_LEN],
    pub(crate) requests: Vec<Vec<u8>>,
    pub(crate) next: usize,
}

impl Device {
    /// Makes a batch, its body and its signature.
    pub(crate) fn signed_batch(&mut self) -> (Batch, String, String) {
        let batch = self.tracker.next_batch(BATCH_RECORDS as usize);
        let body = spell(&batch);
        let signature = sign(&self.key, body.as_bytes());
        (batch, body, signature)
    }

    fn add_request(&mut self) {
        let (batch, body, signature) = self.signed_batch();
        let device_id = &batch.device_id;
        let length = body.len();
        let request = format!(
            "POST /v1/batches HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\nX-Device-Id: {device_id}\r\n\
             X-Signature: sha256={signature}\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        self.requests.push(request.into_bytes());
    }
}

/// The whole fleet. Half of its devices name an epoch.
pub(crate) fn fleet(devices: u32) -> Outcome<Vec<Device>> {
    let fleet_key = FleetKey::new(FLEET_KEY.as_bytes());
    let epoch = EpochId::new(3).ok_or("3 is an epoch id")?;
    let device = |index| {
        let tracker = Tracker::new(1, index);
        let tracker = if index % 2 == 1 { tracker.in_epoch(epoch) } else { tracker };
        let key = fleet_key.derive(tracker.device_id());
        Device { tracker, key, requests: Vec::new(), next: 0 }
    };
    Ok((0..devices).map(device).collect())
}

/// Forgets what was sent and makes sure that `batches` more wait, spread over all devices.
pub(crate) fn prepare(fleet: &mut [Device], batches: usize) {
    let each = batches / fleet.len().max(1) + 1;
    for device in fleet {
        device.requests.drain(..device.next);
        device.next = 0;
        while device.requests.len() < each {
            device.add_request();
        }
    }
}
