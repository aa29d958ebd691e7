//! The API document, generated from the handlers; `schema/openapi.json` is its golden copy.

use serde::Serialize;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi, ToSchema};

/// A batch as trackers send it. What the decoder takes beyond this is in the documentation of the wire.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Batch)]
pub(super) struct BatchBody {
    /// 1–64 of `A-Z a-z 0-9 . _ : -`.
    #[schema(pattern = "^[A-Za-z0-9._:-]{1,64}$")]
    device_id: String,
    /// A UUID in any spelling, or other printable ASCII; unique for the device.
    #[schema(min_length = 1, max_length = 128)]
    batch_id: String,
    /// The epoch of the records; without it they go to the device's current one.
    epoch_id: Option<u64>,
    /// None: a heartbeat.
    records: Vec<RecordBody>,
}

/// A record as trackers send it; any other field is kept under `extra`.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SentRecord)]
pub(super) struct RecordBody {
    /// The device's counter within its epoch, 0 … 2^63−1.
    seq: u64,
    /// RFC 3339, or whole Unix seconds.
    recorded_at: Option<String>,
    /// Degrees WGS 84; null or absent together with `lon`: no fix.
    #[schema(minimum = -90, maximum = 90)]
    lat: Option<f64>,
    /// Degrees WGS 84.
    #[schema(minimum = -180, maximum = 180)]
    lon: Option<f64>,
    /// Volts.
    battery: Option<f64>,
}

/// What was decided for an upload.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Receipt)]
pub(super) struct ReceiptBody {
    /// `processed`, `duplicate` or `quarantined`.
    status: String,
    /// Records newly logged.
    accepted: Option<u64>,
    /// Exact repeats; absent where zero.
    repeated: Option<u64>,
    /// Other content under a known key; absent where zero.
    conflicts: Option<u64>,
    /// Of the accepted ones: those that wait behind a guard; absent where zero.
    held: Option<u64>,
    /// Records that cannot be used; absent where zero.
    quarantined: Option<u64>,
    /// Whether state or position moved.
    applied: Option<bool>,
    /// Why not, or why the body was kept for a person.
    reason: Option<String>,
    /// Epoch of the device's state after the commit.
    epoch_id: Option<u64>,
    /// Seq of the device's state after the commit.
    last_seq: Option<u64>,
}

#[derive(OpenApi)]
#[openapi(
    info(title = "Tidegate", description = "Satellite telemetry ingestion gateway"),
    paths(
        super::ingest::upload,
        super::read::list,
        super::read::one,
        super::track::track,
        super::session::begin,
        super::session::end,
        super::status::healthz,
        super::status::readyz,
        super::status::metrics,
        super::status::openapi,
        super::status::start,
    ),
    modifiers(&Entrances),
)]
struct Document;

/// How readers come in.
struct Entrances;

impl Modify for Entrances {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        let components = openapi.components.get_or_insert_default();
        components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
        let cookie = ApiKey::Cookie(ApiKeyValue::new(super::session::COOKIE));
        components.add_security_scheme("session", SecurityScheme::ApiKey(cookie));
    }
}

/// The document as pretty JSON.
pub(super) fn document() -> String {
    // Plain data: it always serialises, and the golden copy would show if it did not.
    let mut text = Document::openapi().to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::domain::ids::{EpochId, Seq};
    use crate::domain::reason::Reason;
    use crate::domain::receipt::{Counts, Receipt, Status, Why};

    #[test]
    fn generated_openapi_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/schema/openapi.json");
        #[expect(clippy::disallowed_methods, reason = "a switch of this test, not of the program")]
        let update = std::env::var("UPDATE_SCHEMA").is_ok();
        if update {
            std::fs::write(path, document()).expect("schema/ is writable");
        }
        let golden = std::fs::read_to_string(path).expect("schema/openapi.json is there");
        assert!(golden == document(), "schema/openapi.json is old: run `make schema`");
    }

    #[test]
    fn the_start_page_lists_every_route() {
        let page = include_str!("start.html");
        for (path, item) in Document::openapi().paths.paths {
            for (method, operation) in [("GET", item.get), ("POST", item.post), ("DELETE", item.delete)] {
                let route = format!("<code>{method} {path}</code>");
                assert!(operation.is_none() || path == "/" || page.contains(&route), "{route}");
            }
        }
    }

    #[test]
    fn the_documented_receipt_has_the_fields_of_the_real_one() {
        let counts = Counts { accepted: 1, repeated: 1, conflicts: 1, held: 1, quarantined: 1 };
        let real = Receipt {
            status: Status::Processed,
            counts: Some(counts),
            applied: Some(false),
            reason: Some(Why::Quarantined(Reason::InvalidJson)),
            epoch_id: Some(EpochId::ZERO),
            last_seq: Some(Seq::ZERO),
        };
        let documented = ReceiptBody {
            status: String::new(),
            accepted: None,
            repeated: None,
            conflicts: None,
            held: None,
            quarantined: None,
            applied: None,
            reason: None,
            epoch_id: None,
            last_seq: None,
        };
        let fields = |value: serde_json::Value| -> BTreeSet<String> {
            value.as_object().expect("an object").keys().cloned().collect()
        };
        assert_eq!(
            fields(serde_json::to_value(real).expect("JSON")),
            fields(serde_json::to_value(documented).expect("JSON"))
        );
    }
}
