//! The gateway as a process of its own, watched through /proc and its own metrics.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;

use crate::Outcome;
use crate::client::Client;

/// The fleet key of the gateway.
pub(crate) const FLEET_KEY: &str = "a fleet key for the bench alone";
const READ_TOKEN: &str = "a-read-token-for-the-bench-alone";
/// Longest wait for a figure of the gateway's.
const PATIENCE: Duration = Duration::from_mins(1);
/// Between two looks at it.
const PAUSE: Duration = Duration::from_millis(50);

/// A running gateway. Dropped, it is killed.
pub(crate) struct Server {
    child: Child,
    address: SocketAddr,
    tls: Option<Arc<ClientConfig>>,
    _folder: TempDir,
}

impl Server {
    pub(crate) fn start(tls: bool) -> Outcome<Self> {
        let folder = tempfile::Builder::new().prefix("bench-").tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let store = format!("sqlite:{}", folder.path().join("tidegate.db").display());
        command.arg("serve").current_dir(folder.path());
        command.env("TIDEGATE_STORE", store).env("TIDEGATE_LISTEN", "127.0.0.1:0");
        for (name, value) in [
            ("TIDEGATE_FLEET_KEYS", FLEET_KEY),
            ("TIDEGATE_SEAL_KEYS", "a seal key for the bench alone"),
            ("TIDEGATE_ADMIN_TOKENS", "an-admin-token-for-the-bench-alone"),
            ("TIDEGATE_READ_TOKENS", READ_TOKEN),
            ("TIDEGATE_CONNECTIONS_MAX", "101000"),
            ("TIDEGATE_KEEPALIVE_REQUESTS", "1000000000"),
            ("TIDEGATE_LOG", "off"),
        ] {
            command.env(name, value);
        }
        let tls = if tls { Some(issue(&mut command, &folder)?) } else { None };
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(child.stderr.take().ok_or("no stderr")?);
        let mut told = String::new();
        let address = loop {
            let from = told.len();
            if lines.read_line(&mut told)? == 0 {
                child.wait()?;
                return Err(format!("the gateway ended before it listened:\n{told}").into());
            }
            if let Some((_, address)) = told[from..].rsplit_once("://") {
                break address.trim().parse()?;
            }
        };
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::stderr()));
        Ok(Self { child, address, tls, _folder: folder })
    }

    pub(crate) fn client(&self) -> Client {
        Client { address: self.address, tls: self.tls.clone() }
    }

    /// Memory that it holds now, in bytes.
    pub(crate) fn resident_bytes(&self) -> Outcome<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
        Ok(resident.trim().trim_end_matches("kB").trim().parse::<f64>()? * 1024.0)
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
        let head = format!("Host: gateway\r\nAuthorization: Bearer {READ_TOKEN}\r\nConnection: close\r\n");
        connection.write_all(format!("GET /metrics HTTP/1.1\r\n{head}\r\n").as_bytes())?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer)?;
        let line = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(line.ok_or_else(|| format!("no {name} in: {answer}"))?.trim().parse()?)
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn stop(mut self) -> Outcome<()> {
        let id = self.child.id().to_string();
        let signalled = Command::new("kill").args(["-TERM", &id]).status()?;
        let ended = self.child.wait()?;
        if signalled.success() && ended.success() {
            Ok(())
        } else {
            Err(format!("the gateway ended with {ended}").into())
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails only where it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
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
