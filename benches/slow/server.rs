//! The gateway as a process of its own, watched through /proc and its own metrics.

use std::process::Command;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;

use crate::Outcome;
use crate::client::Client;
use crate::support::{self, Process};

/// Longest wait for a figure of the gateway's.
const PATIENCE: Duration = Duration::from_mins(1);
/// Between two looks at it.
const PAUSE: Duration = Duration::from_millis(50);

/// A running gateway.
pub(crate) struct Server {
    process: Process,
    tls: Option<Arc<ClientConfig>>,
    _folder: TempDir,
}

impl Server {
    pub(crate) fn start(tls: bool) -> Outcome<Self> {
        let folder = tempfile::Builder::new().prefix("bench-").tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
        let mut command = support::gateway(folder.path());
        command.env("TIDEGATE_CONNECTIONS_MAX", "101000").env("TIDEGATE_LOG", "off");
        let tls = if tls { Some(issue(&mut command, &folder)?) } else { None };
        Ok(Self { process: Process::start(command)?, tls, _folder: folder })
    }

    pub(crate) fn client(&self) -> Client {
        Client { address: self.process.address, tls: self.tls.clone() }
    }

    /// Memory that it holds now, in bytes.
    pub(crate) fn resident_bytes(&self) -> Outcome<f64> {
        self.process.memory("VmRSS")
    }

    /// Waits until a number of its metrics has come up to this.
    pub(crate) fn wait_for(&self, name: &str, least: f64) -> Outcome<()> {
        self.wait_until(name, |value| value >= least)
    }

    /// Waits until it has fallen to zero.
    pub(crate) fn wait_for_none(&self, name: &str) -> Outcome<()> {
        self.wait_until(name, |value| value == 0.0)
    }

    fn wait_until(&self, name: &str, enough: impl Fn(f64) -> bool) -> Outcome<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let value = self.metric(name)?;
            if enough(value) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("{name} stays at {value}").into());
            }
            sleep(PAUSE);
        }
    }

    fn metric(&self, name: &str) -> Outcome<f64> {
        let mut connection = self.client().connect()?;
        connection.write_all(support::metrics_request().as_bytes())?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer)?;
        support::metric(&answer, name)
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn stop(self) -> Outcome<()> {
        self.process.stop()
    }
}

/// Makes a certificate for the gateway, and a client that trusts it.
fn issue(command: &mut Command, folder: &TempDir) -> Outcome<Arc<ClientConfig>> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    let key = KeyPair::generate()?;
    let cert = CertificateParams::new(vec!["127.0.0.1".to_owned()])?.signed_by(&key, &authority)?;
    for (name, file, text) in
        [("TIDEGATE_TLS_CERT", "cert.pem", cert.pem()), ("TIDEGATE_TLS_KEY", "key.pem", key.serialize_pem())]
    {
        let path = folder.path().join(file);
        std::fs::write(&path, text)?;
        command.env(name, path);
    }
    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
