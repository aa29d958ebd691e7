//! Composition root: builds a gateway from its parts and runs it to its end.

use std::io;
use std::pin::pin;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::http::{self, Gateway, Parts};
use crate::ops::clock::Clock;
use crate::ops::config::Config;
use crate::ops::metrics::Metrics;
use crate::ops::secrets::Secrets;
use crate::store::Store;
use crate::store::writer::Writer;

/// Secrets that were read anew, or a line for each fault that they have. No line holds a secret.
pub type Reload = Result<Secrets, Vec<String>>;

/// Serves until `shutdown` is done. Returns when every upload whose body was wholly read is committed and
/// answered, and the writer has ended. The listener is bound already, so that a caller knows its port and no
/// test waits for one. Secrets that come from `reloads` are live from then on.
pub async fn run(
    config: Config,
    secrets: Secrets,
    store: Arc<dyn Store>,
    listener: TcpListener,
    clock: Arc<dyn Clock>,
    mut reloads: mpsc::Receiver<Reload>,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let metrics = Arc::new(Metrics::new());
    let observer: Arc<Metrics> = Arc::clone(&metrics);
    let writer = Writer::start(Arc::clone(&store), &config.writer, observer)?;
    let gateway = Gateway::new(Parts {
        store,
        writer: writer.clone(),
        secrets,
        clock,
        metrics,
        limits: config.limits,
        http: config.http,
        readers: config.store_options.readers,
        guard_days: config.store_options.policy.guard_days,
    });
    let mut serving = pin!(http::serve(Arc::clone(&gateway), listener, shutdown));
    let served = loop {
        tokio::select! {
            served = &mut serving => break served,
            Some(reload) = reloads.recv() => take(&gateway, reload),
        }
    };
    writer.close().await;
    served
}

/// Uploads under way keep the secrets that they began with; after a fault everybody does.
fn take(gateway: &Gateway, reload: Reload) {
    match reload {
        Ok(secrets) => {
            gateway.replace_secrets(secrets);
            tracing::info!("secrets reloaded; live are: {}", gateway.secrets().describe());
        }
        Err(faults) => {
            for fault in faults {
                tracing::error!("{fault}");
            }
            tracing::error!("secrets not reloaded; live are as before: {}", gateway.secrets().describe());
        }
    }
}
