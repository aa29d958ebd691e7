//! The settings as flags, made from the one table of `ops::config`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, value_parser};

use super::{Failure, Terminal};
use crate::ops::config::{self, Fault, Flags, Loaded, SETTINGS, Setting};

const HEADING: &str = "Configuration";

/// Names of flags, in the order of the table: clap keeps names for ever, so they are made once.
static FLAG_NAMES: LazyLock<Vec<String>> =
    LazyLock::new(|| SETTINGS.iter().map(Setting::flag_name).collect());

/// `--config` and a flag for every setting that is no secret.
#[derive(Clone, Debug, Default)]
pub(super) struct AllSettings(Flags);

/// `--config` and `--store`: all that commands beside `serve` need.
#[derive(Clone, Debug, Default)]
pub(super) struct StoreSettings(Flags);

impl AllSettings {
    /// Loads with this environment, and from this folder where no flag names a file.
    pub(super) fn load(
        &self,
        environment: &[(OsString, OsString)],
        here: &Path,
    ) -> Result<Loaded, Vec<Fault>> {
        config::load(&self.0, environment.iter().cloned(), here)
    }
}

impl StoreSettings {
    pub(super) fn load(&self, terminal: &Terminal) -> Result<Loaded, Failure> {
        Ok(config::load(&self.0, terminal.environment.iter().cloned(), &terminal.here)?)
    }
}

fn augment(command: Command, wanted: impl Fn(&Setting) -> bool) -> Command {
    let config = Arg::new("config")
        .long("config")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .help("Configuration file [default: tidegate.toml, where there is one]")
        .help_heading(HEADING);
    let settings = SETTINGS.iter().zip(FLAG_NAMES.iter()).filter(|(setting, _)| wanted(setting));
    settings.fold(command.arg(config), |command, (setting, flag)| command.arg(argument(setting, flag)))
}

fn argument(setting: &Setting, flag: &'static str) -> Arg {
    let default = setting.default.unwrap_or_default().trim_matches('"');
    let default = if default.is_empty() { "none" } else { default };
    Arg::new(setting.name)
        .long(flag)
        .value_name("VALUE")
        .help(format!("{} [env: {}] [default: {default}]", setting.help, setting.environment_name()))
        .help_heading(HEADING)
        // `-h` stays one screen.
        .hide_short_help(!matches!(setting.name, "listen" | "store" | "log"))
}

fn is_flag(setting: &Setting) -> bool {
    !setting.is_secret()
}

fn is_store(setting: &Setting) -> bool {
    setting.name == "store"
}

fn read(matches: &ArgMatches, wanted: impl Fn(&Setting) -> bool) -> Flags {
    let value = |setting: &Setting| Some((setting.name, matches.get_one::<String>(setting.name)?.clone()));
    Flags {
        config: matches.get_one::<PathBuf>("config").cloned(),
        values: SETTINGS.iter().filter(|setting| wanted(setting)).filter_map(value).collect(),
    }
}

macro_rules! arguments {
    ($name:ident, $wanted:path) => {
        impl FromArgMatches for $name {
            fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
                Ok(Self(read(matches, $wanted)))
            }

            fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
                *self = Self::from_arg_matches(matches)?;
                Ok(())
            }
        }

        impl Args for $name {
            fn augment_args(command: Command) -> Command {
                augment(command, $wanted)
            }

            fn augment_args_for_update(command: Command) -> Command {
                augment(command, $wanted)
            }
        }
    };
}

arguments!(AllSettings, is_flag);
arguments!(StoreSettings, is_store);
