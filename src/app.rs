//! Composition root: builds a gateway from its parts and runs it to its end.

use std::io;
use std::sync::Arc;

use tokio::net::TcpListener;

use crate::http::{self, Gateway, Parts};
use crate::ops::clock::Clock;
use crate::ops::config::Config;
use crate::ops::metrics::Metrics;
use crate::ops::secrets::Secrets;
use crate::store::Store;
use crate::store::writer::Writer;

/// Serves until `shutdown` is done. Returns when every upload whose body was wholly read is committed and
/// answered, and the writer has ended. The listener is bound already, so that a caller knows its port and no
/// test waits for one.
pub async fn run(
    config: Config,
    secrets: Secrets,
    store: Arc<dyn Store>,
    listener: TcpListener,
    clock: Arc<dyn Clock>,
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
    let served = http::serve(gateway, listener, shutdown).await;
    writer.close().await;
    served
}
