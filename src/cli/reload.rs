//! SIGHUP: the sources of the secrets are read again while the gateway runs.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::Failure;
use super::serve::check_fleet_keys;
use super::settings::AllSettings;
use crate::app::Reload;
use crate::ops::config::SETTINGS;
use crate::ops::secrets::Secrets;
use crate::store::Store;

/// Where the gateway's secrets came from when it started. Flags and environment stay as they were then; the
/// files may have changed.
pub(super) struct Sources {
    pub(super) settings: AllSettings,
    pub(super) environment: Vec<(OsString, OsString)>,
    pub(super) here: PathBuf,
    /// That of the store that is open, whatever the file names now.
    pub(super) data_dir: PathBuf,
    pub(super) store: Arc<dyn Store>,
    /// All settings as they were at start.
    pub(super) effective: Vec<String>,
}

impl Sources {
    /// Reads everything anew; nothing is generated. Fleet keys of which the store knows none are refused as
    /// they are at start. Blocks.
    fn read(&self) -> Result<Secrets, Failure> {
        let loaded = self.settings.load(&self.environment, &self.here)?;
        let secrets = loaded.secrets.complete(&self.data_dir, false)?.secrets;
        check_fleet_keys(&secrets.fleet_keys, self.store.as_ref())?;
        let changes = SETTINGS.iter().zip(self.effective.iter().zip(&loaded.effective));
        for (_, (_, now)) in changes.filter(|(setting, (then, now))| !setting.is_secret() && then != now) {
            tracing::warn!("{now}: takes effect at the next start; SIGHUP reloads secrets alone");
        }
        Ok(secrets)
    }
}

/// Reads the secrets anew at every SIGHUP from now on. Signals that come while they are read are one more.
pub(super) fn at_hangup(sources: Sources) -> io::Result<mpsc::Receiver<Reload>> {
    let mut hangup = signal(SignalKind::hangup())?;
    let (reloads, receiver) = mpsc::channel(1);
    let sources = Arc::new(sources);
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            tracing::info!("SIGHUP: reading the secrets anew");
            let sources = Arc::clone(&sources);
            let reading = tokio::task::spawn_blocking(move || sources.read().map_err(Failure::lines));
            let reload = reading.await.unwrap_or_else(|_| Err(vec!["reading them panicked".to_owned()]));
            if reloads.send(reload).await.is_err() {
                // The gateway has ended.
                return;
            }
        }
    });
    Ok(receiver)
}
