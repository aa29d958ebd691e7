//! What is wrong with one value, and how it is shown to a person.

use crate::domain::reason::Reason;

/// Most characters of a sent value that a detail quotes.
const QUOTED_CHARS_MAX: usize = 80;

/// Why a record (or a field of the batch) cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// The stable code.
    pub(super) reason: Reason,
    /// Which field, which value; short.
    pub(super) detail: String,
}

impl Fault {
    pub(super) fn new(reason: Reason, detail: impl Into<String>) -> Self {
        Self { reason, detail: detail.into() }
    }

    /// The same key stands twice in one object.
    pub(super) fn twice(key: &str) -> Self {
        Self::new(Reason::DuplicateKey, format!("the key {} stands twice", quoted(key)))
    }

    /// A string holds what is no Unicode text.
    pub(super) fn text() -> Self {
        Self::new(Reason::TextInvalid, "text with a lone surrogate or bytes that are not UTF-8")
    }
}

/// A sent value, cut to a bearable length and on one line.
pub(super) fn quoted(sent: &str) -> String {
    let mut chars = sent.chars();
    let head = chars.by_ref().take(QUOTED_CHARS_MAX);
    let mut shown: String = head.map(|c| if c.is_control() { ' ' } else { c }).collect();
    if chars.next().is_some() {
        shown.push('…');
    }
    shown
}
