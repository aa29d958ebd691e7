//! One tracker of the fleet: plays its script, books what has arrived, and looks whether the gateway knows it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::timeout;

use super::run::{Given, Sea};
use super::tally::Differences;
use crate::domain::ids::{EpochId, Key, Seq};
use crate::fleet::{Account, Delivery, Fate, Ledger, Parcel, Random, Role, Script};

/// The state is read after one in so many acknowledgements.
const READ_ONCE_IN: u32 = 6;
/// Differences kept of one device: on the way, and in all.
const ROOM_ON_THE_WAY: usize = 4;
const ROOM: usize = 10;

pub(super) struct Member {
    sea: Arc<Sea>,
    script: Script,
    ledger: Ledger,
    /// Decides what is looked at, so that looking changes nothing in the script.
    random: Random,
    /// Keys of state and position as they were read last.
    seen: (Option<Key>, Option<Key>),
    differences: Differences,
    told_backlog: u64,
    told_records: u64,
}

/// How it went.
pub(super) struct Logbook {
    pub(super) differences: Differences,
    /// Distinct contents that arrived.
    pub(super) contents: u64,
}

impl Member {
    pub(super) fn new(sea: Arc<Sea>, script: Script, ledger: Ledger, seed: u64) -> Self {
        let random = Random::new(seed);
        let differences = Differences::default();
        Self {
            sea,
            script,
            ledger,
            random,
            seen: (None, None),
            differences,
            told_backlog: 0,
            told_records: 0,
        }
    }

    /// Sails until the run is over, delivers what is left, and compares.
    pub(super) async fn sail(mut self) -> Given<Logbook> {
        let mut uploads = 0;
        let sea = Arc::clone(&self.sea);
        if !self.script.in_the_past() {
            sea.pause(self.random.below(1000)).await;
        }
        loop {
            let over = sea.over(uploads);
            if over {
                self.script.close();
            }
            // The past goes out as fast as answers come: a tracker that was out of sight has a backlog.
            let in_the_past = self.script.in_the_past();
            let Some(delivery) = self.script.next(sea.now().filter(|_| !in_the_past)) else { break };
            uploads += 1;
            self.tell(&delivery);
            self.play(&delivery).await?;
            if !over && !in_the_past {
                // Half to one and a half times the interval.
                sea.pause(500 + self.random.below(1000)).await;
            }
        }
        self.compare().await?;
        sea.tally.devices_done.add(1);
        Ok(Logbook { contents: self.ledger.contents(), differences: self.differences })
    }

    fn tell(&mut self, delivery: &Delivery) {
        let tally = &self.sea.tally;
        tally.uploads.add(1);
        match delivery.role {
            Role::First => {}
            Role::Retry => tally.retries.add(1),
            Role::Copy => tally.copies.add(1),
        }
        if delivery.held_back {
            tally.held_back.add(1);
        }
        match delivery.fate {
            Fate::Delivered => {}
            Fate::NeverSent | Fate::HeaderBroken | Fate::BodyBroken { .. } => tally.requests_lost.add(1),
            Fate::AnswerLost | Fate::Cut { .. } => tally.answers_lost.add(1),
        }
        let backlog = u64::try_from(self.script.backlog()).unwrap_or(u64::MAX);
        tally.backlog.shift(self.told_backlog, backlog);
        tally.records_made.shift(self.told_records, self.script.records());
        (self.told_backlog, self.told_records) = (backlog, self.script.records());
    }

    async fn play(&mut self, delivery: &Delivery) -> Given<()> {
        let sea = Arc::clone(&self.sea);
        let _slot = sea.slot().await;
        let parcel = &*delivery.parcel;
        let device_id = self.script.device_id();
        match delivery.fate {
            Fate::NeverSent => return Ok(()),
            Fate::HeaderBroken => {
                sea.link.half_header().await;
                return Ok(());
            }
            Fate::BodyBroken { permille } => {
                sea.link.upload_half(device_id, &parcel.body, permille).await;
                return Ok(());
            }
            Fate::AnswerLost if self.random.once_in(2) => {
                // The gateway answered; what it said is lost for good.
                let perhaps = sea.again(|| sea.link.upload_unheard(device_id, &parcel.body)).await?.1;
                let account = self.ledger.receive(parcel);
                sea.tally.unheard.add(1);
                return self.look(&account, perhaps).await;
            }
            Fate::AnswerLost | Fate::Delivered => self.settle(parcel, false).await?,
            Fate::Cut { after_ms } => {
                let cut = Duration::from_millis(u64::from(after_ms));
                let heard = timeout(cut, sea.link.upload(device_id, &parcel.body)).await;
                if let Ok(Ok(receipt)) = heard {
                    self.book(parcel, &receipt, false).await?;
                    self.settle(parcel, false).await?;
                } else {
                    self.settle(parcel, true).await?;
                }
            }
        }
        Ok(())
    }

    /// Sends these bytes until they are acknowledged; nothing else of this device goes out before, so that the
    /// order of arrival is known. `perhaps`: they may have arrived already.
    async fn settle(&mut self, parcel: &Parcel, perhaps: bool) -> Given<()> {
        let sea = Arc::clone(&self.sea);
        let device_id = self.script.device_id();
        let (receipt, failed) = sea.again(|| sea.link.upload(device_id, &parcel.body)).await?;
        self.book(parcel, &receipt, perhaps || failed).await
    }

    async fn book(&mut self, parcel: &Parcel, receipt: &Value, perhaps: bool) -> Given<()> {
        let account = self.ledger.receive(parcel);
        match receipt["status"].as_str() {
            Some("processed") => self.sea.tally.processed.add(1),
            Some("duplicate") => self.sea.tally.duplicate.add(1),
            Some("quarantined") => self.sea.tally.quarantined.add(1),
            _ => self.sea.tally.unheard.add(1),
        }
        if let Some(line) =
            self.ledger.check_receipt(&account, receipt, perhaps).filter(|_| !receipt.is_null())
        {
            self.differ(line, ROOM_ON_THE_WAY);
        }
        self.look(&account, perhaps).await
    }

    /// Now and then reads the state right behind an acknowledgement: it must be there.
    async fn look(&mut self, account: &Account, perhaps: bool) -> Given<()> {
        // Always where the gateway has just failed: that is when something acknowledged could be gone.
        if !perhaps && !self.random.once_in(READ_ONCE_IN) {
            return Ok(());
        }
        self.sea.tally.states_read.add(1);
        self.check_state(account.state, ROOM_ON_THE_WAY).await
    }

    async fn check_state(&mut self, acknowledged: Option<Key>, room: usize) -> Given<()> {
        let sea = Arc::clone(&self.sea);
        let id = self.script.device_id().clone();
        let (state, _) = sea.again(|| sea.link.device(&id)).await?;
        if self.ledger.is_blank() {
            if state.is_some() {
                self.differ(format!("device {id}: known, though nothing of it has arrived"), room);
            }
            return Ok(());
        }
        let state = state.unwrap_or(Value::Null);
        let said = read_key(&state, "epoch_id", "last_seq");
        let position = read_key(&state, "position_epoch_id", "position_seq");
        let shown = |key: Option<Key>| key.map_or("none".to_owned(), |key| key.to_string());
        if said < acknowledged {
            let (acknowledged, said) = (shown(acknowledged), shown(said));
            let line = format!(
                "device {id} at {acknowledged}: acknowledged, but the state read afterwards is at {said}"
            );
            self.differ(line, room);
        }
        for (what, before, now) in [("state", self.seen.0, said), ("position", self.seen.1, position)] {
            if now < before {
                let (before, now) = (shown(before), shown(now));
                let line = format!("device {id} at {before}: the {what} went back to {now}");
                self.differ(line, room);
            }
        }
        self.seen = (said, position);
        for line in self.ledger.check_state(&state) {
            self.differ(line, room);
        }
        Ok(())
    }

    fn differ(&mut self, line: String, room: usize) {
        self.sea.notice(&line);
        self.differences.add(line, room);
    }

    /// State and whole track against the books.
    async fn compare(&mut self) -> Given<()> {
        let sea = Arc::clone(&self.sea);
        let _slot = sea.slot().await;
        self.check_state(self.ledger.state_key(), ROOM).await?;
        let (ledger, id) = (&self.ledger, self.script.device_id());
        let read = || async {
            let (mut told, mut check, mut records) = (Differences::default(), ledger.check_track(), 0);
            let mut tell = |line| told.add(line, ROOM);
            sea.link
                .track(id, |record| {
                    records += 1;
                    check.record(record, &mut tell);
                })
                .await?;
            check.end(&mut tell);
            Ok((told, records))
        };
        let ((told, records), _) = sea.again(read).await?;
        sea.tally.records_read.add(records);
        let unlisted = told.count - u64::try_from(told.listed.len()).unwrap_or(told.count);
        told.listed.into_iter().for_each(|line| self.differ(line, ROOM));
        self.differences.count += unlisted;
        Ok(())
    }
}

fn read_key(state: &Value, epoch_id: &str, seq: &str) -> Option<Key> {
    let epoch_id = state[epoch_id].as_u64().and_then(EpochId::new)?;
    Some(Key { epoch_id, seq: state[seq].as_u64().and_then(Seq::new)? })
}
