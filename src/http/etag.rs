//! Entity tags: the revision of a state, and `If-None-Match`.

use axum::http::header::IF_NONE_MATCH;
use axum::http::{HeaderMap, HeaderValue};

/// The strong tag of a revision.
pub(super) fn tag(revision: u64) -> HeaderValue {
    // Quotes and digits are always a header value.
    HeaderValue::try_from(format!("\"{revision}\"")).unwrap_or_else(|_| HeaderValue::from_static("\"\""))
}

/// Whether the client already has what `tag` names. The comparison is the weak one (RFC 9110, 13.1.2): a
/// proxy that compresses turns a strong tag into a weak one. `*` names whatever there is.
pub(super) fn is_known(headers: &HeaderMap, tag: &HeaderValue) -> bool {
    headers.get_all(IF_NONE_MATCH).iter().any(|line| {
        line.as_bytes().split(|b| *b == b',').map(<[u8]>::trim_ascii).any(|one| {
            // No tag of ours holds a comma or a quote, so splitting at commas cannot make one up.
            one == b"*" || one.strip_prefix(b"W/").unwrap_or(one) == tag.as_bytes()
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compares_lists_weak_tags_and_the_star() {
        for (lines, known) in [
            (&[][..], false),
            (&["\"7\""], true),
            (&["W/\"7\""], true),
            (&["\"6\" , \"7\""], true),
            (&["\"6\"", "W/\"7\""], true),
            (&["*"], true),
            (&["7"], false),
            (&["\"77\""], false),
            (&["w/\"7\""], false),
            (&["\"*\""], false),
            (&[""], false),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(IF_NONE_MATCH, line.parse().expect("a header value"));
            }
            assert_eq!(is_known(&headers, &tag(7)), known, "{lines:?}");
        }
    }
}
