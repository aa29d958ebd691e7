//! Checks single values; collects what is wrong instead of stopping at it.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::source::Raw;
use super::{Fault, Setting, StoreUrl};
use crate::ops::logging;

/// The merged values and the faults found in them. After a fault the default is read on with, so that every
/// fault is found; the caller must look at [`Reader::into_faults`] before using anything.
#[derive(Debug)]
pub(crate) struct Reader {
    values: BTreeMap<&'static str, Raw>,
    faults: Vec<Fault>,
}

impl Reader {
    pub(super) fn new(values: BTreeMap<&'static str, Raw>, faults: Vec<Fault>) -> Self {
        Self { values, faults }
    }

    pub(super) fn into_faults(self) -> Vec<Fault> {
        self.faults
    }

    pub(crate) fn fault(&mut self, key: &str, text: impl Into<String>) {
        self.faults.push(Fault::new(key, text));
    }

    /// A whole number within bounds.
    pub(super) fn number<T>(&mut self, key: &'static str, bounds: RangeInclusive<T>, default: T) -> T
    where
        T: FromStr + PartialOrd + Display,
    {
        let Some(text) = self.text(key) else { return default };
        match text.parse() {
            Ok(number) if bounds.contains(&number) => number,
            _ => {
                let (low, high) = bounds.into_inner();
                self.fault(key, format!("{text:?} is not a whole number from {low} to {high}"));
                default
            }
        }
    }

    /// A number of bytes or things held in memory; the bounds fit 64 bits.
    pub(super) fn size(&mut self, key: &'static str, bounds: RangeInclusive<u64>, default: usize) -> usize {
        let kept = u64::try_from(default).unwrap_or(u64::MAX);
        let number = self.number(key, bounds, kept);
        usize::try_from(number).unwrap_or_else(|_| {
            self.fault(key, format!("{number} is more than this machine can count"));
            default
        })
    }

    /// Whole seconds.
    pub(super) fn seconds(
        &mut self,
        key: &'static str,
        bounds: RangeInclusive<u64>,
        default: Duration,
    ) -> Duration {
        Duration::from_secs(self.number(key, bounds, default.as_secs()))
    }

    /// `true` or `false`.
    pub(super) fn flag(&mut self, key: &'static str, default: bool) -> bool {
        self.choice(key, &[("true", true), ("false", false)], default)
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(&mut self, key: &'static str, choices: &[(&str, T)], default: T) -> T {
        let Some(text) = self.text(key) else { return default };
        if let Some((_, value)) = choices.iter().find(|(word, _)| *word == text) {
            return *value;
        }
        let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
        self.fault(key, format!("{text:?} is not {}", words.join(" or ")));
        default
    }

    /// `host:port`. Whether the host exists shows when the address is bound.
    pub(super) fn address(&mut self, key: &'static str, default: &str) -> String {
        let Some(text) = self.text(key) else { return default.to_owned() };
        let fits = text.rsplit_once(':').is_some_and(|(host, port)| {
            let bracketed = host.starts_with('[') && host.ends_with(']');
            let host_fits = !host.is_empty() && (bracketed || !host.contains([':', '/']));
            host_fits && port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok()
        });
        if !fits {
            self.fault(key, format!("{text:?} is not host:port, as in 127.0.0.1:8080 or [::1]:8080"));
        }
        text
    }

    /// The path of a file, or nothing.
    pub(super) fn path(&mut self, key: &'static str) -> Option<PathBuf> {
        match self.values.get(key) {
            Some(Raw::Text(text)) if text.trim().is_empty() => None,
            _ => self.text(key).map(PathBuf::from),
        }
    }

    /// `sqlite:PATH`.
    pub(super) fn store(&mut self, key: &'static str, default: StoreUrl) -> StoreUrl {
        let Some(text) = self.text(key) else { return default };
        let fault = match text.split_once(':') {
            Some(("sqlite", path)) => match path {
                "" => "sqlite: names no file; write sqlite:data/tidegate.db",
                ":memory:" => "sqlite::memory: would forget every upload at the end; name a file",
                _ if path.starts_with("//") => "write sqlite:PATH, without slashes in front of the path",
                _ if path.ends_with('/') => "sqlite: names a folder; name the file in it",
                _ => return StoreUrl::Sqlite(path.into()),
            },
            // The URL itself stays out of the message: it may hold a password.
            Some(("postgres" | "postgresql", _)) => {
                "this build has no PostgreSQL store yet; write sqlite:PATH, as in sqlite:data/tidegate.db"
            }
            _ => "is no store; write sqlite:PATH, as in sqlite:data/tidegate.db",
        };
        self.fault(key, fault);
        default
    }

    /// A filter of log lines.
    pub(super) fn filter(&mut self, key: &'static str, default: &str) -> String {
        let Some(text) = self.text(key) else { return default.to_owned() };
        if let Err(fault) = logging::check_filter(&text) {
            self.fault(key, fault);
        }
        text
    }

    /// The entries of a list, blanks around them removed: of an array in the file as they stand, of a text
    /// split at commas. `None` if it is not set at all; an empty text or array gives no entries.
    pub(crate) fn list(&self, key: &'static str) -> Option<Vec<String>> {
        let entries = match self.values.get(key)? {
            Raw::List(items) => items.iter().map(|item| item.trim().to_owned()).collect(),
            Raw::Text(text) if text.trim().is_empty() => Vec::new(),
            Raw::Text(text) => text.split(',').map(|item| item.trim().to_owned()).collect(),
        };
        Some(entries)
    }

    /// `name = value`, as the file would spell it; of a secret only how many entries there are.
    pub(super) fn describe(&self, setting: &Setting) -> String {
        let name = setting.name;
        let Some(default) = setting.default else {
            return match self.list(name).map_or(0, |entries| entries.len()) {
                0 => format!("{name} = (not configured)"),
                n => format!("{name} = ({n} configured)"),
            };
        };
        let quoted = default.starts_with('"');
        match self.values.get(name) {
            Some(Raw::Text(text)) if quoted => format!("{name} = {text:?}"),
            Some(Raw::Text(text)) => format!("{name} = {}", text.trim()),
            _ => format!("{name} = {default}"),
        }
    }

    fn text(&mut self, key: &'static str) -> Option<String> {
        match self.values.get(key)? {
            Raw::Text(text) if text.trim().is_empty() => {
                self.fault(key, "is empty; leave it out for the default");
                None
            }
            Raw::Text(text) => Some(text.trim().to_owned()),
            Raw::List(_) => {
                self.fault(key, "is a list; one value is wanted");
                None
            }
        }
    }
}
