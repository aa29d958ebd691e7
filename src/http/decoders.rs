//! Who decodes a large body next: few at once, and of one device one at a time, so that a device whose bodies take
//! long to read keeps nobody else waiting for longer than one of them.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::domain::ids::DeviceId;

/// See the module.
#[derive(Debug)]
pub(super) struct Decoders {
    permits: Semaphore,
    /// Devices that decode or wait for a permit: at most as many as bodies are in flight. `None` stands for all
    /// that signed with the fleet key itself.
    devices: Mutex<HashSet<Option<DeviceId>>>,
    left: Notify,
}

/// The right to decode, until dropped.
pub(super) struct Turn<'d> {
    decoders: &'d Decoders,
    device: Option<DeviceId>,
    permit: Option<SemaphorePermit<'d>>,
}

impl Decoders {
    /// So many at once.
    pub(super) fn new(at_once: usize) -> Self {
        Self { permits: Semaphore::new(at_once), devices: Mutex::default(), left: Notify::new() }
    }

    /// Waits for this device's turn; `None` where it did not come in time.
    pub(super) async fn turn(&self, device: Option<&DeviceId>, patience: Duration) -> Option<Turn<'_>> {
        let turn = async {
            loop {
                let mut left = pin!(self.left.notified());
                // Listening starts before looking: whoever leaves in between is not missed.
                left.as_mut().enable();
                if self.devices().insert(device.cloned()) {
                    break;
                }
                left.await;
            }
            // Made before the permit came, so that a turn that never comes gives its place up as well.
            let mut turn = Turn { decoders: self, device: device.cloned(), permit: None };
            // The semaphore is never closed; a permit that is not there would only mean one more thread.
            turn.permit = self.permits.acquire().await.ok();
            turn
        };
        timeout(patience, turn).await.ok()
    }

    fn devices(&self) -> std::sync::MutexGuard<'_, HashSet<Option<DeviceId>>> {
        // A set of ids is never half written.
        self.devices.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.permit = None;
        self.decoders.devices().remove(&self.device);
        self.decoders.left.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn now<'d>(decoders: &'d Decoders, device: Option<&str>) -> Option<Turn<'d>> {
        let device = device.map(|id| DeviceId::parse(id).expect("an id"));
        decoders.turn(device.as_ref(), Duration::ZERO).await
    }

    #[tokio::test]
    async fn a_device_has_one_turn_at_a_time_and_all_have_so_many() {
        let decoders = Decoders::new(2);
        let one = now(&decoders, Some("a")).await.expect("free");
        assert!(now(&decoders, Some("a")).await.is_none(), "its first is under way");
        let other = now(&decoders, Some("b")).await.expect("free");
        assert!(now(&decoders, None).await.is_none(), "two are under way");
        drop(one);
        let third = now(&decoders, None).await.expect("there is room, and who gave up left nothing behind");
        drop((other, third));
        assert!(now(&decoders, Some("a")).await.is_some() && decoders.devices().is_empty());
    }

    #[tokio::test]
    async fn the_next_of_a_device_waits_for_the_one_before() {
        let decoders = Decoders::new(2);
        let id = DeviceId::parse("a").expect("an id");
        let first = decoders.turn(Some(&id), Duration::ZERO).await.expect("free");
        let mut second = pin!(decoders.turn(Some(&id), Duration::from_mins(1)));
        let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(second.as_mut().poll(cx).is_pending()));
        assert!(polled.await);
        drop(first);
        assert!(second.await.is_some());
    }
}
