//! `Prefer: return=minimal` (RFC 7240).

use axum::http::HeaderMap;
use axum::http::header::HeaderName;

static PREFER: HeaderName = HeaderName::from_static("prefer");

/// Whether the client asks for an answer without a body. Lists, several lines, blanks, letter case, quotes
/// and parameters are all allowed; of several `return` preferences the first one counts.
pub(super) fn wants_minimal(headers: &HeaderMap) -> bool {
    headers
        .get_all(&PREFER)
        .iter()
        .flat_map(|line| split_quoted(line.as_bytes(), b','))
        .find_map(returned)
        .is_some_and(|value| value.eq_ignore_ascii_case(b"minimal"))
}

/// The value of a `return` preference; `None` for any other one.
fn returned(preference: &[u8]) -> Option<&[u8]> {
    let token = split_quoted(preference, b';').next()?;
    let equals = token.iter().position(|b| *b == b'=')?;
    let (name, value) = (token[..equals].trim_ascii(), token[equals + 1..].trim_ascii());
    if !name.eq_ignore_ascii_case(b"return") {
        return None;
    }
    let unquoted = value.strip_prefix(b"\"").and_then(|v| v.strip_suffix(b"\""));
    Some(unquoted.unwrap_or(value))
}

/// Splits at a separator that stands outside quotes.
fn split_quoted(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let (mut quoted, mut escaped) = (false, false);
    text.split(move |byte| {
        if escaped {
            escaped = false;
        } else if quoted && *byte == b'\\' {
            escaped = true;
        } else if *byte == b'"' {
            quoted = !quoted;
        }
        *byte == separator && !quoted
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_preference_in_every_form() {
        for (lines, minimal) in [
            (&[][..], false),
            (&["return=minimal"], true),
            (&["Return=Minimal"], true),
            (&["return = \"minimal\""], true),
            (&["respond-async, return=minimal"], true),
            (&["respond-async", "wait=10;x=y", "return=minimal; foo=bar"], true),
            (&["foo=\"a, return=minimal\""], false),
            (&["foo=\"a\\\", b\", return=minimal"], true),
            (&["return=representation, return=minimal"], false),
            (&["return=representation", "return=minimal"], false),
            (&["return=minimal, return=representation"], true),
            (&["return"], false),
            (&["return=minimally"], false),
            (&["handling=lenient;return=minimal"], false),
            (&["", ",,"], false),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(&PREFER, line.parse().expect("a header value"));
            }
            assert_eq!(wants_minimal(&headers), minimal, "{lines:?}");
        }
    }
}
