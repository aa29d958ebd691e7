//! A tracker: signs bodies with the key derived for it.

use bytes::Bytes;
use serde_json::{Value, json};
use tidegate::domain::batch::Limits;
use tidegate::domain::ids::DeviceId;
use tidegate::domain::signature::{self, FleetKey};
use tidegate::domain::time::Timestamp;
use tidegate::domain::upload::Upload;

/// The fleet key of all tests.
pub(crate) const FLEET_KEY: &[u8] = b"a fleet key for tests, not a secret";

/// A tracker with its id.
#[derive(Clone, Debug)]
pub(crate) struct Tracker {
    pub(crate) id: DeviceId,
}

impl Tracker {
    pub(crate) fn new(id: &str) -> Self {
        Self { id: super::device(id) }
    }

    /// The value of `X-Signature` for a body.
    pub(crate) fn sign(&self, body: &[u8]) -> String {
        signature::sign(&FleetKey::new(FLEET_KEY).derive(&self.id), body)
    }

    /// A body of this tracker, as JSON text.
    pub(crate) fn body(&self, batch_id: &str, epoch_id: Option<u64>, records: &Value) -> Value {
        let mut body = json!({"device_id": self.id.as_str(), "batch_id": batch_id, "records": records});
        if let Some(epoch_id) = epoch_id {
            body["epoch_id"] = json!(epoch_id);
        }
        body
    }

    /// A verified and decoded upload, as the gateway would hand it to the store.
    pub(crate) fn upload(&self, body: &Value, received_at: Timestamp) -> Upload {
        self.upload_raw(body.to_string().as_bytes(), received_at)
    }

    /// The same for any bytes.
    pub(crate) fn upload_raw(&self, body: &[u8], received_at: Timestamp) -> Upload {
        let offered = signature::read_signatures([self.sign(body).as_bytes()]);
        let keys = [FleetKey::new(FLEET_KEY)];
        let verified =
            signature::verify(&keys, Some(&self.id), false, &offered, Bytes::copy_from_slice(body));
        Upload::read(verified.expect("the signature holds"), received_at, &Limits::default())
    }
}

/// Records `from … to`, a minute apart, on a course across open water.
pub(crate) fn records(from: u64, to: u64) -> Value {
    Value::Array((from..=to).map(record).collect())
}

/// The record with this seq.
pub(crate) fn record(seq: u64) -> Value {
    let minutes = i64::try_from(seq % 100_000).expect("small");
    let step = f64::from(u32::try_from(seq % 1000).expect("small")) / 1000.0;
    json!({
        "seq": seq,
        "recorded_at": super::BEGIN + 60 * minutes,
        "lat": 21.0 + step,
        "lon": -157.0 - step,
        "battery": 3.8,
        "speed": 4.5,
    })
}
