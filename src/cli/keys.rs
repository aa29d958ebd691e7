//! `tidegate keys`: fleet keys and the device keys derived from them.

use std::fmt;

use clap::Subcommand;

use super::settings::StoreSettings;
use super::{Failure, Terminal};
use crate::domain::ids::DeviceId;
use crate::domain::signature::{FleetKey, parse_secret, spell_key};
use crate::ops::secrets::generate_fleet_key;

const DERIVE_EXAMPLES: &str = "\
The fleet key is the first of: --fleet-key, TIDEGATE_FLEET_KEYS or fleet_keys of tidegate.toml, secrets.toml in
the data directory. The device key is base64(HMAC-SHA256(fleet key, device id)), as in Azure DPS enrolment groups.

Examples:
  tidegate keys derive track-exp-084
  tidegate keys derive track-exp-084 --store sqlite:/var/lib/tidegate/tidegate.db";

/// Make fleet keys, and derive the key of a device
#[derive(Debug, Subcommand)]
pub(super) enum Keys {
    /// Print the base64 key that a device signs with
    #[command(after_help = DERIVE_EXAMPLES)]
    Derive {
        /// The device's id
        #[arg(value_parser = read_device_id)]
        device: DeviceId,
        #[command(flatten)]
        fleet_key: FleetKeyFlag,
        #[command(flatten)]
        settings: StoreSettings,
    },
    /// Print a fresh fleet key, as `TIDEGATE_FLEET_KEYS` takes it
    New,
}

#[derive(Debug, clap::Args)]
pub(super) struct FleetKeyFlag {
    /// Fleet key, `whsec_<base64>` or plain text; the list of processes shows it, so better configure it
    #[arg(long, value_name = "KEY")]
    fleet_key: Option<Hidden>,
}

/// A secret as it was typed. Read only after clap is done: clap's errors quote the value.
#[derive(Clone)]
pub(super) struct Hidden(pub(super) String);

impl From<String> for Hidden {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hidden")
    }
}

impl FleetKeyFlag {
    /// Whether it stands on the command line.
    pub(super) fn is_given(&self) -> bool {
        self.fleet_key.is_some()
    }

    /// The key that was given, or else the first of the configuration or of the data directory.
    pub(super) fn resolve(&self, settings: &StoreSettings, terminal: &Terminal) -> Result<FleetKey, Failure> {
        if let Some(Hidden(text)) = &self.fleet_key {
            let secret =
                parse_secret(text).map_err(|fault| Failure::fault("--fleet-key", fault.to_string()))?;
            return Ok(FleetKey::new(&secret));
        }
        let loaded = settings.load(terminal)?;
        Ok(loaded.secrets.first_fleet_key(loaded.config.data_dir())?)
    }
}

pub(super) fn read_device_id(text: &str) -> Result<DeviceId, String> {
    DeviceId::parse(text).ok_or_else(|| "not 1 to 64 of A-Z a-z 0-9 . _ : - (nor . or ..)".to_owned())
}

pub(super) fn run(command: &Keys, terminal: &mut Terminal) -> Result<(), Failure> {
    let line = match command {
        Keys::Derive { device, fleet_key, settings } => {
            spell_key(&fleet_key.resolve(settings, terminal)?.derive(device))
        }
        Keys::New => generate_fleet_key().map_err(Failure::Failed)?,
    };
    Ok(terminal.print(&line)?)
}
