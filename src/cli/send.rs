//! `tidegate send`: signs and uploads batch files as a tracker would.

mod upload;

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Deserialize;

use self::upload::{Answer, Uploader};
use super::keys::{FleetKeyFlag, Hidden, read_device_id};
use super::settings::StoreSettings;
use super::web::Trust;
use super::{Failure, Terminal};
use crate::domain::ids::DeviceId;
use crate::domain::signature::{FleetKey, SIGNATURE_LEN, read_key};
use crate::fleet::Encoding;

const EXAMPLES: &str = "\
Sends each file's bytes exactly as they are, or with --encoding what they come to in that form, signed with the
device's key: --key, or derived from the fleet key (--fleet-key, or else TIDEGATE_FLEET_KEYS, fleet_keys of
tidegate.toml, or secrets.toml in the data directory). The device is the one that the file names in JSON, unless
--device says otherwise; a file that is packed already, or CBOR, needs --device. Prints the receipts to stdout, one a
line. Exits 0 when every file was acknowledged (200 or 202), 1 otherwise.

Examples:
  tidegate send batch.json
  tidegate send --key t4myAYV8jquLB58IJOnuaJnYyehT+el8txNpupoWeJo= --url https://gateway.example batch.json
  tidegate send --url https://gateway.example --ca ca.pem batch.json
  tidegate send --device track-exp-084 - < batch.json
  tidegate send --encoding cbor+zstd batch.json
  tidegate send --retry 5 --minimal fixtures/demo/*.json";

/// Sign and upload batch files as a tracker would, and print the receipts
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Send {
    /// Batch files; - is stdin
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The gateway, without a path
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    url: String,
    #[command(flatten)]
    trust: Trust,
    /// The device; needed where it cannot be read from the file
    #[arg(long, value_name = "ID", value_parser = read_device_id)]
    device: Option<DeviceId>,
    /// Encode the file, which is JSON: json, gzip, zlib, zstd, cbor, cbor+gzip, cbor+zlib or cbor+zstd
    #[arg(long, value_name = "FORM")]
    encoding: Option<Encoding>,
    /// The device's own key in base64, as `tidegate keys derive` prints it
    #[arg(long, value_name = "BASE64", conflicts_with = "fleet_key")]
    key: Option<Hidden>,
    #[command(flatten)]
    fleet_key: FleetKeyFlag,
    /// Ask for an answer without body, as a tracker on an expensive link does
    #[arg(long)]
    minimal: bool,
    /// Try again so often where the gateway says 503 or cannot be reached, each time waiting longer
    #[arg(long, value_name = "N", default_value_t = 0)]
    retry: u32,
    #[command(flatten)]
    settings: StoreSettings,
}

/// With what uploads are signed.
enum Key {
    Fleet(FleetKey),
    Device([u8; SIGNATURE_LEN]),
}

impl Key {
    fn of_device(&self, device_id: &DeviceId) -> [u8; SIGNATURE_LEN] {
        match self {
            Self::Fleet(key) => key.derive(device_id),
            Self::Device(key) => *key,
        }
    }
}

pub(super) fn run(command: &Send, terminal: &mut Terminal) -> Result<(), Failure> {
    let key = match &command.key {
        Some(Hidden(text)) => Key::Device(
            read_key(text)
                .ok_or_else(|| Failure::fault("--key", "is not base64 of a device key's 32 bytes"))?,
        ),
        None => Key::Fleet(command.fleet_key.resolve(&command.settings, terminal)?),
    };
    let uploader = Uploader::new(&command.url, &command.trust, command.minimal, command.retry)?;
    let mut all_acknowledged = true;
    for file in &command.files {
        all_acknowledged &= match send_file(command, &key, &uploader, file, terminal) {
            Ok(answer) => print(&answer, file, terminal)?,
            Err(text) => {
                terminal.tell(&format!("tidegate: {}: {text}", file.display()));
                false
            }
        };
    }
    if all_acknowledged { Ok(()) } else { Err(Failure::Told) }
}

fn send_file(
    command: &Send,
    key: &Key,
    uploader: &Uploader,
    file: &Path,
    terminal: &mut Terminal,
) -> Result<Answer, String> {
    let body = read_file(file).map_err(|error| format!("cannot be read: {error}"))?;
    let device_id = match &command.device {
        Some(device_id) => device_id.clone(),
        None => device_of(&body)?,
    };
    let body = match command.encoding {
        Some(encoding) => encoding.encode(&body).map_err(|error| error.to_string())?,
        None => body,
    };
    uploader.upload(&device_id, &key.of_device(&device_id), body, |line| {
        terminal.tell(&format!("tidegate: {}: {line}", file.display()));
    })
}

fn read_file(file: &Path) -> std::io::Result<Vec<u8>> {
    if file.as_os_str() == "-" {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    std::fs::read(file)
}

/// The device that a JSON batch names. The gateway salvages much that this does not try to read.
fn device_of(body: &[u8]) -> Result<DeviceId, String> {
    #[derive(Deserialize)]
    struct Named {
        device_id: String,
    }
    let text = body.strip_prefix("\u{feff}".as_bytes()).unwrap_or(body);
    serde_json::from_slice::<Named>(text)
        .ok()
        .and_then(|named| DeviceId::parse(&named.device_id))
        .ok_or_else(|| "names no device that could be read; say whose it is with --device".to_owned())
}

/// Prints an answer; whether it acknowledges.
fn print(answer: &Answer, file: &Path, terminal: &mut Terminal) -> Result<bool, Failure> {
    if !answer.body.is_empty() {
        terminal.print(&answer.body)?;
    }
    if !answer.acknowledged() {
        terminal.tell(&format!("tidegate: {}: not acknowledged: {}", file.display(), answer.status));
    }
    Ok(answer.acknowledged())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_is_read_from_the_file() {
        for (body, device) in [
            (&br#"{"device_id":"track-exp-084","records":[]}"#[..], Some("track-exp-084")),
            (b"\xef\xbb\xbf{\"x\":{\"device_id\":\"no\"},\"device_id\":\"000270\"}", Some("000270")),
            (br#"{"device_id":"a b"}"#, None),
            (br#"{"device_id":7}"#, None),
            (br#"{"device_id":"a","device_id":"b"}"#, None),
            (b"\x1f\x8b\x08", None),
            (b"", None),
        ] {
            assert_eq!(device_of(body).ok().as_ref().map(DeviceId::as_str), device);
        }
    }
}
