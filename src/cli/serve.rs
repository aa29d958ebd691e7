//! `tidegate serve`: the gateway itself.

use std::sync::Arc;

use clap::Args;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tracing::Level;

use super::reload::{self, Sources};
use super::settings::AllSettings;
use super::{Failure, Terminal};
use crate::app;
use crate::domain::signature::FleetKey;
use crate::ops::clock::SystemClock;
use crate::ops::config::{Config, Loaded};
use crate::ops::descriptors;
use crate::ops::logging;
use crate::ops::secrets::{Configured, Secrets};
use crate::ops::tls::{TlsFiles, TlsIdentity};
use crate::store::{Store, StoreUrl, open};

const EXAMPLES: &str = "\
Settings come from flags, then TIDEGATE_… in the environment, then the file. Secrets have no flag: the list of
processes would show them. What of fleet_keys, seal_keys, admin_tokens and read_tokens is not configured is
generated at the first start into secrets.toml in the data directory. SIGTERM commits and answers what has
arrived, then exits 0. SIGHUP reads the secrets anew, and the files of tls_cert and tls_key, without cutting an upload.

Examples:
  tidegate serve
  tidegate serve --listen 0.0.0.0:8080 --store sqlite:/var/lib/tidegate/tidegate.db
  tidegate serve --listen 0.0.0.0:8443 --tls-cert fullchain.pem --tls-key privkey.pem
  TIDEGATE_FLEET_KEYS=\"$(cat /run/secrets/fleet_keys)\" tidegate serve --log info,tidegate::store=debug";

/// Start the gateway
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Serve {
    #[command(flatten)]
    settings: AllSettings,
}

pub(super) fn run(command: &Serve, terminal: &mut Terminal) -> Result<(), Failure> {
    let Loaded { mut config, log, secrets, warnings, effective } =
        command.settings.load(&terminal.environment, &terminal.here)?;
    logging::start(&log).map_err(|error| Failure::Failed(format!("cannot start logging: {error}")))?;
    for warning in &warnings {
        tracing::warn!("{warning}");
    }
    tracing::info!("tidegate {}: {}", env!("CARGO_PKG_VERSION"), effective.join(", "));
    let tls = config.tls.as_ref().map(load_tls).transpose()?;
    bound_connections(&mut config);
    let store = open::open(&config.store, &config.store_options)?;
    let mut secrets = complete(secrets, &config, store.as_ref(), terminal)?;
    secrets.tls.clone_from(&tls);
    check_fleet_keys(&secrets.fleet_keys, store.as_ref())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("tidegate-http")
        .enable_all()
        .build()
        .map_err(|error| Failure::Failed(format!("cannot start threads: {error}")))?;
    let sources = Sources {
        settings: command.settings.clone(),
        environment: terminal.environment.clone(),
        here: terminal.here.clone(),
        data_dir: config.data_dir().to_owned(),
        tls_files: config.tls.clone(),
        tls,
        store: Arc::clone(&store),
        effective,
    };
    runtime.block_on(serve(config, secrets, store, sources, terminal))
}

/// Reads certificate and key, and says what is unwise about them.
pub(super) fn load_tls(files: &TlsFiles) -> Result<TlsIdentity, Failure> {
    let (identity, warnings) = TlsIdentity::load(files)?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    Ok(identity)
}

/// Takes no more connections than there are file descriptors for.
fn bound_connections(config: &mut Config) {
    let wanted = config.http.connections_max;
    let fitting = descriptors::make_room(wanted);
    if fitting < wanted {
        tracing::warn!(
            "connections_max: {wanted} need more file descriptors than this process may have; it takes {fitting}. Raise the limit \
             (ulimit -n, LimitNOFILE in a systemd unit), or lower connections_max"
        );
        config.http.connections_max = fitting;
    }
}

/// Fills in the secrets that are not configured. Generated ones are allowed only before the first device: it
/// and all after it would know other keys.
fn complete(
    configured: Configured,
    config: &Config,
    store: &dyn Store,
    terminal: &mut Terminal,
) -> Result<Secrets, Failure> {
    let may_generate = matches!(config.store, StoreUrl::Sqlite(_)) && !store.has_devices()?;
    let completed = configured.complete(config.data_dir(), may_generate)?;
    if let Some(path) = completed.generated {
        announce(terminal, &format!("generated secrets into {}; back this file up", path.display()));
    }
    Ok(completed.secrets)
}

/// Refuses a store whose trackers know none of the live fleet keys.
pub(super) fn check_fleet_keys(live: &[FleetKey], store: &dyn Store) -> Result<(), Failure> {
    let fingerprints: Vec<_> = live.iter().map(FleetKey::fingerprint).collect();
    if store.adopt_fleet_keys(&fingerprints)? {
        return Ok(());
    }
    let shown: Vec<_> = fingerprints.iter().map(ToString::to_string).collect();
    Err(Failure::fault(
        "fleet_keys",
        format!(
            "none of the live keys (fingerprints {}) was used with this store before, so every tracker would be \
             locked out; restore secrets.toml from the backup, or add one of the former keys",
            shown.join(", ")
        ),
    ))
}

async fn serve(
    config: Config,
    secrets: Secrets,
    store: Arc<dyn Store>,
    sources: Sources,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let failed =
        |error: std::io::Error| Failure::Failed(format!("cannot listen on {}: {error}", config.listen));
    let deaf = |error: std::io::Error| Failure::Failed(format!("cannot wait for signals: {error}"));
    let shutdown = shutdown_signal().map_err(deaf)?;
    let reloads = reload::at_hangup(sources).map_err(deaf)?;
    let listener = TcpListener::bind(&config.listen).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    announce(terminal, &format!("listening on {scheme}://{address}"));
    app::run(config, secrets, store, listener, Arc::new(SystemClock), reloads, shutdown)
        .await
        .map_err(|error| Failure::Failed(error.to_string()))?;
    tracing::info!("stopped");
    Ok(())
}

/// Ends with the first SIGTERM or SIGINT from now on.
fn shutdown_signal() -> std::io::Result<impl Future<Output = ()> + Send + 'static> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => tracing::info!("SIGTERM: stopping"),
            _ = interrupt.recv() => tracing::info!("SIGINT: stopping"),
        }
    })
}

/// Says once what somebody waits for, also where the log is set to say less.
fn announce(terminal: &mut Terminal, line: &str) {
    if tracing::enabled!(Level::INFO) {
        tracing::info!("{line}");
    } else {
        terminal.tell(&format!("tidegate: {line}"));
    }
}
