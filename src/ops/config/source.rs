//! The three sources of configuration, merged.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::settings::{lookup, nearest};
use super::{Fault, SETTINGS};

/// The file that is read where no flag names one.
const DEFAULT_FILE: &str = "tidegate.toml";
const ENVIRONMENT_PREFIX: &str = "TIDEGATE_";

/// What was set by flags.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// `--config`: the file to read instead of `tidegate.toml`.
    pub config: Option<PathBuf>,
    /// Settings by name. Flags of secrets do not exist.
    pub values: Vec<(&'static str, String)>,
}

/// A value as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Raw {
    /// A scalar, spelled as text.
    Text(String),
    /// A list of the file.
    List(Vec<String>),
}

pub(super) struct Merged {
    pub(super) values: BTreeMap<&'static str, Raw>,
    pub(super) faults: Vec<Fault>,
    pub(super) warnings: Vec<String>,
}

pub(super) fn merge(
    flags: &Flags,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    here: &Path,
) -> Merged {
    let mut merged = Merged { values: BTreeMap::new(), faults: Vec::new(), warnings: Vec::new() };
    merged.take_file(flags.config.as_deref(), here);
    merged.take_environment(environment);
    for (name, value) in &flags.values {
        merged.values.insert(name, Raw::Text(value.clone()));
    }
    merged
}

impl Merged {
    fn take_file(&mut self, named: Option<&Path>, here: &Path) {
        let path = named.map_or_else(|| here.join(DEFAULT_FILE), Path::to_owned);
        let shown = path.display().to_string();
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if named.is_none() && error.kind() == ErrorKind::NotFound => return,
            Err(error) => return self.faults.push(Fault::new(shown, format!("cannot be read: {error}"))),
        };
        match text.parse::<toml::Table>() {
            Ok(table) => table.into_iter().for_each(|(key, value)| self.take_file_value(&key, value, &shown)),
            // Not the error's own text: it quotes the line, and the line may hold a secret.
            Err(error) => {
                let line = error.span().map_or(0, |span| text[..span.start].matches('\n').count() + 1);
                self.faults.push(Fault::new(shown, format!("line {line}: is not TOML: {}", error.message())));
            }
        }
    }

    fn take_file_value(&mut self, key: &str, value: toml::Value, shown: &str) {
        let Some(setting) = lookup(key) else {
            let hint = nearest(key).map_or_else(String::new, |near| format!("; did you mean {}?", near.name));
            return self.faults.push(Fault::new(key, format!("is no setting (in {shown}){hint}")));
        };
        let raw = match value {
            toml::Value::Array(items) => items.into_iter().map(scalar).collect::<Option<_>>().map(Raw::List),
            other => scalar(other).map(Raw::Text),
        };
        match raw {
            Some(raw) => drop(self.values.insert(setting.name, raw)),
            None => self
                .faults
                .push(Fault::new(key, "must be text, a number, true or false (or a list of texts)")),
        }
    }

    fn take_environment(&mut self, environment: impl IntoIterator<Item = (OsString, OsString)>) {
        for (name, value) in environment {
            let Some(name) = name.to_str().filter(|name| name.starts_with(ENVIRONMENT_PREFIX)) else {
                continue;
            };
            let Some(setting) = SETTINGS.iter().find(|setting| setting.environment_name() == name) else {
                let near = nearest(&name[ENVIRONMENT_PREFIX.len()..]);
                let hint =
                    near.map_or_else(String::new, |s| format!("; did you mean {}?", s.environment_name()));
                self.warnings
                    .push(format!("{name} in the environment is no setting and has no effect{hint}"));
                continue;
            };
            match value.into_string() {
                Ok(text) => drop(self.values.insert(setting.name, Raw::Text(text))),
                Err(_) => self.faults.push(Fault::new(setting.name, format!("{name} is not UTF-8"))),
            }
        }
    }
}

fn scalar(value: toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Float(number) => Some(number.to_string()),
        toml::Value::Boolean(flag) => Some(flag.to_string()),
        toml::Value::Datetime(_) | toml::Value::Array(_) | toml::Value::Table(_) => None,
    }
}
