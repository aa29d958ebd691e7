//! Composition root: builds a gateway from its parts.

use std::sync::Arc;

use tokio::net::TcpListener;

use crate::ops::clock::Clock;
use crate::ops::config::Config;
use crate::ops::secrets::Secrets;
use crate::store::Store;

/// Skeleton.
pub async fn run(
    _config: Config,
    _secrets: Secrets,
    _store: Arc<dyn Store>,
    _listener: TcpListener,
    _clock: Arc<dyn Clock>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    shutdown.await;
    Ok(())
}
