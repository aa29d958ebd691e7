//! The certificate and key with which the gateway speaks TLS itself.

use std::fmt;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{Error, ServerConfig};
use sha2::{Digest as _, Sha256};

use super::config::Fault;
use crate::domain::signature::hex;

/// The files, as they are configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// PEM: the gateway's certificate, then those that lead to its issuer.
    pub cert: PathBuf,
    /// PEM: the private key of the first certificate.
    pub key: PathBuf,
}

/// A certificate chain with its key, ready to serve. `Debug` prints the certificate's fingerprint only.
#[derive(Clone)]
pub struct TlsIdentity {
    config: Arc<ServerConfig>,
    fingerprint: String,
}

impl TlsIdentity {
    /// Reads and checks both files. With it come warnings, a line each. Blocks.
    pub fn load(files: &TlsFiles) -> Result<(Self, Vec<String>), Vec<Fault>> {
        let (cert, key) = match (read_chain(&files.cert), read_key(&files.key)) {
            (Ok(cert), Ok(key)) => (cert, key),
            (cert, key) => return Err(cert.err().into_iter().chain(key.err()).collect()),
        };
        let (key, warnings) = key;
        let fingerprint = fingerprint(&cert);
        let config = config(cert, key).map_err(|error| vec![unusable(files, &error)])?;
        Ok((Self { config: Arc::new(config), fingerprint }, warnings))
    }

    /// What connections are accepted with.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }

    /// SHA-256 of the certificate, in hex, as `openssl x509 -fingerprint -sha256` tells it without colons.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }
}

impl fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TlsIdentity({})", self.fingerprint)
    }
}

/// TLS 1.2 and 1.3, HTTP/1.1 inside.
fn config(cert: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<ServerConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(cert, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // A tracker that comes back with a ticket is spared the certificates, most of a handshake's bytes. The
    // gateway keeps nothing for it, and one ticket is enough for a client that makes one connection.
    config.ticketer = ring::Ticketer::new()?;
    config.send_tls13_tickets = 1;
    Ok(config)
}

fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, Fault> {
    let text = read("tls_cert", path)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let chain = chain.map_err(|_| fault("tls_cert", path, "is not PEM"))?;
    if chain.is_empty() {
        return Err(fault("tls_cert", path, "holds no certificate (-----BEGIN CERTIFICATE-----)"));
    }
    Ok(chain)
}

fn read_key(path: &Path) -> Result<(PrivateKeyDer<'static>, Vec<String>), Fault> {
    let text = read("tls_key", path)?;
    // The parser's own text could quote the file.
    let key = PrivateKeyDer::from_pem_slice(&text)
        .map_err(|_| fault("tls_key", path, "holds no private key (PEM, unencrypted)"))?;
    let mode = std::fs::metadata(path).map(|file| file.mode() & 0o777).unwrap_or_default();
    // The group may read it: that is how key files are commonly shared with a service.
    let open = mode & 0o007 != 0;
    let warning = open.then(|| {
        format!(
            "tls_key: {} has mode {mode:04o}, so everybody here may read it; run chmod o= on it",
            path.display()
        )
    });
    Ok((key, warning.into_iter().collect()))
}

fn read(setting: &str, path: &Path) -> Result<Vec<u8>, Fault> {
    std::fs::read(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => fault(setting, path, "does not exist"),
        _ => fault(setting, path, &format!("cannot be read: {error}")),
    })
}

fn unusable(files: &TlsFiles, error: &Error) -> Fault {
    match error {
        Error::InconsistentKeys(_) => {
            let text = format!("does not belong to the first certificate of {}", files.cert.display());
            fault("tls_key", &files.key, &text)
        }
        Error::InvalidCertificate(why) => {
            fault("tls_cert", &files.cert, &format!("holds a certificate that cannot be used: {why:?}"))
        }
        other => fault("tls_key", &files.key, &format!("cannot be used: {other}")),
    }
}

fn fault(setting: &str, path: &Path, text: &str) -> Fault {
    Fault::new(setting, format!("{} {text}", path.display()))
}

fn fingerprint(chain: &[CertificateDer<'_>]) -> String {
    chain.first().map(|cert| hex(&Sha256::digest(cert))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use rcgen::{CertificateParams, KeyPair};
    use tempfile::TempDir;

    use super::*;

    struct Bed {
        folder: TempDir,
        files: TlsFiles,
    }

    /// A folder with a pair that fits.
    fn bed() -> Bed {
        let folder = tempfile::tempdir().expect("a folder");
        let files = TlsFiles { cert: folder.path().join("cert.pem"), key: folder.path().join("key.pem") };
        let (cert, key) = pair();
        std::fs::write(&files.cert, cert).expect("a file");
        std::fs::write(&files.key, key).expect("a file");
        set_mode(&files.key, 0o640);
        Bed { folder, files }
    }

    fn pair() -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let cert =
            CertificateParams::new(vec!["localhost".to_owned()]).and_then(|cert| cert.self_signed(&key));
        (cert.expect("a certificate").pem(), key.serialize_pem())
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("a mode");
    }

    fn faults(files: &TlsFiles) -> Vec<String> {
        let faults = TlsIdentity::load(files).expect_err("refused");
        faults.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_pair_that_fits_is_taken_and_its_key_never_shown() {
        let Bed { folder: _folder, files } = bed();
        let (identity, warnings) = TlsIdentity::load(&files).expect("loads");
        assert_eq!(warnings, Vec::<String>::new());
        assert_eq!(format!("{identity:?}"), format!("TlsIdentity({})", identity.fingerprint()));
        assert_eq!(identity.fingerprint().len(), 64);
        assert_eq!(identity.config().alpn_protocols, [b"http/1.1"]);
        let key = std::fs::read_to_string(&files.key).expect("a file");
        let secret = key.lines().nth(1).expect("base64");
        assert!(!format!("{:?}", identity.config()).contains(secret));

        set_mode(&files.key, 0o604);
        let (_, warnings) = TlsIdentity::load(&files).expect("loads");
        assert!(warnings.len() == 1 && warnings[0].contains("mode 0604"), "{warnings:?}");
    }

    #[test]
    fn what_is_wrong_is_one_line_each() {
        let Bed { folder, files } = bed();
        let shown = |path: &Path| path.display().to_string();
        let (cert, key) = (shown(&files.cert), shown(&files.key));
        let gone = TlsFiles { cert: folder.path().join("a"), key: folder.path().join("b") };
        let (a, b) = (shown(&gone.cert), shown(&gone.key));
        assert_eq!(
            faults(&gone),
            [format!("tls_cert: {a} does not exist"), format!("tls_key: {b} does not exist")]
        );

        let swapped = TlsFiles { cert: files.key.clone(), key: files.cert.clone() };
        assert_eq!(
            faults(&swapped),
            [
                format!("tls_cert: {key} holds no certificate (-----BEGIN CERTIFICATE-----)"),
                format!("tls_key: {cert} holds no private key (PEM, unencrypted)"),
            ]
        );
        let (_, other) = pair();
        std::fs::write(&files.key, &other).expect("a file");
        let line = format!("tls_key: {key} does not belong to the first certificate of {cert}");
        assert_eq!(faults(&files), [line]);

        let rubbish = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        std::fs::write(&files.cert, rubbish).expect("a file");
        let told = faults(&files);
        assert!(
            told.len() == 1 && told[0].starts_with(&format!("tls_cert: {cert} holds a certificate that")),
            "{told:?}"
        );
        std::fs::write(&files.cert, "-----BEGIN CERTIFICATE-----\n!!!\n").expect("a file");
        assert_eq!(faults(&files), [format!("tls_cert: {cert} is not PEM")]);
        std::fs::write(&files.key, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
            .expect("a file");
        assert_eq!(faults(&files).len(), 1);
    }
}
