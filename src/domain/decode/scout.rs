//! Who sent a body that is not JSON: the ids that stand before the fault, for whoever looks into the quarantine.

use std::fmt;

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use super::quick::TextSeed;
use crate::domain::ids::{BatchId, DeviceId};

/// The ids of a body, as far as they can be read before the first fault.
#[derive(Debug, Default)]
pub(super) struct Found {
    device_id: Vec<DeviceId>,
    batch_id: Vec<BatchId>,
}

impl Found {
    /// Both ids, each only if it was named exactly once.
    pub(super) fn into_ids(self) -> (Option<DeviceId>, Option<BatchId>) {
        (only(self.device_id), only(self.batch_id))
    }
}

fn only<T>(mut named: Vec<T>) -> Option<T> {
    named.pop().filter(|_| named.is_empty())
}

/// Reads until the fault.
pub(super) fn scout(text: &str) -> Found {
    let mut found = Found::default();
    // That this fails is why it is called.
    drop(serde_json::Deserializer::from_str(text).deserialize_map(ScoutVisitor { found: &mut found }));
    found
}

struct ScoutVisitor<'f> {
    found: &'f mut Found,
}

impl<'de> Visitor<'de> for ScoutVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a batch")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key_seed(TextSeed)? {
            match &*key {
                "device_id" => self.found.device_id.extend(DeviceId::parse(&map.next_value_seed(TextSeed)?)),
                "batch_id" => self.found.batch_id.extend(BatchId::parse(&map.next_value_seed(TextSeed)?)),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}
