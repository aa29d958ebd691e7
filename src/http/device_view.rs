//! A device's state as JSON, the one form wherever it is read.

use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::epoch::Guard;
use crate::domain::ids::{EpochId, Seq};
use crate::domain::time::Timestamp;
use crate::store::Device;

/// What is known of a device. The state's fields are null while it has no counting entry.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Device)]
pub(super) struct DeviceView<'a> {
    /// The device.
    device_id: &'a str,
    /// Epoch of the greatest counting entry.
    #[schema(value_type = Option<u64>, required)]
    epoch_id: Option<EpochId>,
    /// Its seq.
    #[schema(value_type = Option<u64>, required)]
    last_seq: Option<Seq>,
    /// Last known latitude, degrees WGS 84.
    #[schema(required)]
    lat: Option<f64>,
    /// Last known longitude, degrees WGS 84.
    #[schema(required)]
    lon: Option<f64>,
    /// Epoch of the record that brought the position.
    #[schema(value_type = Option<u64>, required)]
    position_epoch_id: Option<EpochId>,
    /// Its seq.
    #[schema(value_type = Option<u64>, required)]
    position_seq: Option<Seq>,
    /// Its time by the device's clock.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    position_recorded_at: Option<Timestamp>,
    /// Volts, of the greatest counting entry.
    #[schema(required)]
    battery: Option<f64>,
    /// Its time by the device's clock.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    recorded_at: Option<Timestamp>,
    /// When it arrived.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    received_at: Option<Timestamp>,
    /// When the latest authentic upload arrived.
    #[schema(value_type = String, format = DateTime)]
    last_contact_at: Timestamp,
    /// Where batches without an epoch go.
    #[schema(value_type = u64)]
    current_epoch_id: EpochId,
    /// The guard of the current epoch while it stands.
    #[schema(required)]
    guard: Option<GuardView>,
    /// Entries that wait behind a guard.
    held: u64,
    /// Other contents received for keys that were already logged.
    conflicts: u64,
    /// Open quarantine entries.
    quarantined: u64,
    /// What ops should look at.
    signals: Vec<SignalView>,
    /// Name given by ops.
    #[schema(required)]
    label: Option<&'a str>,
    /// Whether ops locked it out.
    disabled: bool,
    /// How often the state changed; the `ETag`.
    revision: u64,
}

/// A guard that stands: which records without an epoch count.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Guard)]
pub(super) struct GuardView {
    /// The epoch it guards.
    #[schema(value_type = u64)]
    epoch_id: EpochId,
    /// The jump allowed as asked for.
    window: u64,
    /// Where the new counter starts.
    #[schema(value_type = u64)]
    next_seq: Seq,
    /// Where the new counter is known to be.
    #[schema(value_type = u64)]
    here: Seq,
    /// Greatest counting seq of the earlier epochs.
    #[schema(value_type = u64)]
    old: Seq,
    /// Greatest seq that counts now.
    reach: u64,
    /// When the epoch was opened.
    #[schema(value_type = String, format = DateTime)]
    raised_at: Timestamp,
    /// When it falls by itself.
    #[schema(value_type = String, format = DateTime)]
    until: Timestamp,
}

/// Something about a device that a person should look at.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Signal)]
pub(super) struct SignalView {
    /// Stable code: `batch_id_reused`.
    signal: &'static str,
    /// Since when.
    #[schema(value_type = String, format = DateTime)]
    since: Timestamp,
    /// What to do about it.
    advice: &'static str,
}

impl<'a> DeviceView<'a> {
    /// The view at a moment; `guard_days` after it was raised a guard is no longer shown.
    pub(super) fn new(device: &'a Device, now: Timestamp, guard_days: u32) -> Self {
        let state = device.state.as_ref();
        let position = state.and_then(|state| state.position.as_ref());
        Self {
            device_id: device.device_id.as_str(),
            epoch_id: state.map(|s| s.key.epoch_id),
            last_seq: state.map(|s| s.key.seq),
            lat: position.map(|p| p.fix.lat),
            lon: position.map(|p| p.fix.lon),
            position_epoch_id: position.map(|p| p.key.epoch_id),
            position_seq: position.map(|p| p.key.seq),
            position_recorded_at: position.and_then(|p| p.recorded_at),
            battery: state.and_then(|s| s.battery),
            recorded_at: state.and_then(|s| s.recorded_at),
            received_at: state.map(|s| s.received_at),
            last_contact_at: device.last_contact_at,
            current_epoch_id: device.current_epoch_id,
            guard: device.guard.and_then(|guard| GuardView::new(&guard, device, now, guard_days)),
            held: device.held,
            conflicts: device.conflicts,
            quarantined: device.quarantined,
            signals: signals(device),
            label: device.label.as_deref(),
            disabled: device.disabled,
            revision: device.revision,
        }
    }
}

impl GuardView {
    fn new(guard: &Guard, device: &Device, now: Timestamp, guard_days: u32) -> Option<Self> {
        let here = guard.here(device.guard_max_counting);
        let old = device.guard_old.filter(|_| guard.stands(here, device.guard_old, now, guard_days))?;
        Some(Self {
            epoch_id: device.current_epoch_id,
            window: guard.window,
            next_seq: guard.next_seq,
            here,
            old,
            reach: guard.reach(here, old),
            raised_at: guard.raised_at,
            until: guard.raised_at.plus_seconds(i64::from(guard_days) * 86_400),
        })
    }
}

fn signals(device: &Device) -> Vec<SignalView> {
    let reused = device.batch_id_reused_at.map(|since| SignalView {
        signal: "batch_id_reused",
        since,
        advice: "A known batch id came with new content: look at the quarantined bodies. Where the firmware \
                 repeats ids after a reboot, set reused_batch_id = \"ingest\".",
    });
    reused.into_iter().collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::domain::ids::{DeviceId, Key};
    use crate::domain::record::Fix;
    use crate::domain::state::{Position, State};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(seconds).expect("in range")
    }

    fn seq(n: u64) -> Seq {
        Seq::new(n).expect("in range")
    }

    fn epoch(n: u64) -> EpochId {
        EpochId::new(n).expect("in range")
    }

    fn bare() -> Device {
        Device {
            device_id: DeviceId::parse("track-exp-084").expect("an id"),
            state: None,
            revision: 0,
            last_contact_at: at(10),
            current_epoch_id: EpochId::ZERO,
            guard: None,
            guard_old: None,
            guard_max_counting: None,
            held: 0,
            conflicts: 0,
            quarantined: 0,
            batch_id_reused_at: None,
            label: None,
            disabled: false,
            fleet_key: None,
        }
    }

    fn json(device: &Device, now: Timestamp) -> String {
        serde_json::to_string(&DeviceView::new(device, now, 7)).expect("JSON")
    }

    #[test]
    fn a_device_without_a_state_has_nulls() {
        let expected = concat!(
            r#"{"device_id":"track-exp-084","epoch_id":null,"last_seq":null,"lat":null,"lon":null,"#,
            r#""position_epoch_id":null,"position_seq":null,"position_recorded_at":null,"battery":null,"#,
            r#""recorded_at":null,"received_at":null,"last_contact_at":"1970-01-01T00:00:10Z","#,
            r#""current_epoch_id":0,"guard":null,"held":0,"conflicts":0,"quarantined":0,"signals":[],"#,
            r#""label":null,"disabled":false,"revision":0}"#
        );
        assert_eq!(json(&bare(), at(10)), expected);
    }

    #[test]
    fn position_and_state_are_separate_facts() {
        let mut device = bare();
        let key = |e, s| Key { epoch_id: epoch(e), seq: seq(s) };
        device.state = Some(State {
            key: key(3, i64::MAX.unsigned_abs()),
            recorded_at: None,
            received_at: at(9),
            battery: Some(3.82),
            position: Some(Position {
                key: key(2, 5),
                fix: Fix { lat: 21.3069, lon: -157.8583 },
                recorded_at: Some(at(1)),
            }),
        });
        let text = json(&device, at(10));
        for part in [
            r#""epoch_id":3,"last_seq":9223372036854775807,"lat":21.3069,"lon":-157.8583,"#,
            r#""position_epoch_id":2,"position_seq":5,"position_recorded_at":"1970-01-01T00:00:01Z","#,
            r#""battery":3.82,"recorded_at":null,"received_at":"1970-01-01T00:00:09Z""#,
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }

    #[test]
    fn a_guard_is_shown_while_it_stands() {
        let mut device = bare();
        device.current_epoch_id = epoch(4);
        device.guard = Some(Guard { window: 1000, next_seq: seq(0), raised_at: at(0) });
        device.guard_old = Some(seq(900));
        device.guard_max_counting = Some(seq(20));
        let shown = concat!(
            r#""guard":{"epoch_id":4,"window":1000,"next_seq":0,"here":20,"old":900,"reach":470,"#,
            r#""raised_at":"1970-01-01T00:00:00Z","until":"1970-01-08T00:00:00Z"}"#
        );
        assert!(json(&device, at(10)).contains(shown), "{}", json(&device, at(10)));
        assert!(json(&device, at(7 * 86_400)).contains(r#""guard":null"#), "its days are over");
        device.guard_max_counting = Some(seq(901));
        assert!(json(&device, at(10)).contains(r#""guard":null"#), "the counter passed the old one");
        device.guard_old = None;
        assert!(json(&device, at(10)).contains(r#""guard":null"#), "nothing older");
    }

    #[test]
    fn signals_say_since_when_and_what_to_do() {
        let mut device = bare();
        device.batch_id_reused_at = Some(at(5));
        let text = json(&device, at(10));
        assert!(
            text.contains(
                r#""signals":[{"signal":"batch_id_reused","since":"1970-01-01T00:00:05Z","advice":"A"#
            ),
            "{text}"
        );
    }
}
