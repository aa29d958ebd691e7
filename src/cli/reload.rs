//! SIGHUP: the sources of the secrets are read again while the gateway runs, certificate and key among them.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::Failure;
use super::serve::{check_fleet_keys, load_tls};
use super::settings::AllSettings;
use crate::app::Reload;
use crate::ops::config::SETTINGS;
use crate::ops::secrets::Secrets;
use crate::ops::tls::{TlsFiles, TlsIdentity};
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
    /// Those that were named at start.
    pub(super) tls_files: Option<TlsFiles>,
    /// The pair that is live.
    pub(super) tls: Option<TlsIdentity>,
}

impl Sources {
    /// Reads everything anew; nothing is generated. Fleet keys of which the store knows none are refused as
    /// they are at start. Blocks.
    fn read(&mut self) -> Result<Secrets, Failure> {
        let loaded = self.settings.load(&self.environment, &self.here)?;
        let mut secrets = loaded.secrets.complete(&self.data_dir, false)?.secrets;
        check_fleet_keys(&secrets.fleet_keys, self.store.as_ref())?;
        let changes = SETTINGS.iter().zip(self.effective.iter().zip(&loaded.effective));
        for (_, (_, now)) in changes.filter(|(setting, (then, now))| !setting.is_secret() && then != now) {
            tracing::warn!(
                "{now}: takes effect at the next start; SIGHUP reloads secrets and certificate alone"
            );
        }
        self.read_tls();
        secrets.tls.clone_from(&self.tls);
        Ok(secrets)
    }

    /// A pair with a fault leaves the old one live and keeps nothing else back: a token that leaked must go
    /// whatever is wrong with a certificate.
    fn read_tls(&mut self) {
        let Some(files) = &self.tls_files else { return };
        match load_tls(files) {
            Ok(identity) => self.tls = Some(identity),
            Err(failure) => {
                for line in failure.lines() {
                    tracing::error!("{line}");
                }
                tracing::error!("certificate not reloaded; the one in use stays");
            }
        }
    }
}

/// Reads the secrets anew at every SIGHUP from now on. Signals that come while they are read are one more.
pub(super) fn at_hangup(sources: Sources) -> io::Result<mpsc::Receiver<Reload>> {
    let mut hangup = signal(SignalKind::hangup())?;
    let (reloads, receiver) = mpsc::channel(1);
    let sources = Arc::new(Mutex::new(sources));
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            tracing::info!("SIGHUP: reading the secrets anew");
            let sources = Arc::clone(&sources);
            // One reading at a time, so nobody waits for the lock; what a panic left is still sound.
            let reading = tokio::task::spawn_blocking(move || {
                let mut sources = sources.lock().unwrap_or_else(PoisonError::into_inner);
                sources.read().map_err(Failure::lines)
            });
            let reload = reading.await.unwrap_or_else(|_| Err(vec!["reading them panicked".to_owned()]));
            if reloads.send(reload).await.is_err() {
                // The gateway has ended.
                return;
            }
        }
    });
    Ok(receiver)
}
