//! Bearer tokens of ops and dashboards.

use std::fmt;

use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConditionallySelectable as _, ConstantTimeEq as _};
use thiserror::Error;

use crate::domain::signature::SECRET_LEN_MIN;

/// Longest name of a token, in bytes: it stands in every audit row.
const NAME_LEN_MAX: usize = 64;

/// What a token may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Read.
    Read,
    /// Read and change.
    Admin,
}

impl Role {
    /// The name of a caller whose token has none.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Admin => "admin",
        }
    }
}

/// Who asks: the token's name, for the audit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The token's name, or `admin` / `read` where it has none.
    pub name: String,
    /// Its role.
    pub role: Role,
}

/// SHA-256 of a token. Not printable: of a token that somebody made up, it would let others try guesses.
#[derive(Clone, Copy)]
pub struct TokenDigest([u8; 32]);

impl TokenDigest {
    /// The digest of a presented token.
    pub fn of(token: &[u8]) -> Self {
        Self(Sha256::digest(token).into())
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether both are of one token, in constant time.
    pub fn is(&self, other: &Self) -> Choice {
        self.0.ct_eq(&other.0)
    }
}

/// Why a text is no token. The message never holds the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TokenFault {
    /// Nothing there, or nothing behind the name.
    #[error("is empty")]
    Empty,
    /// Fewer bytes than a secret needs.
    #[error("is too short: a token has at least 16 bytes (behind the name and its colon)")]
    Short,
    /// A second colon, or a comma.
    #[error("is not token or name:token with one colon at most and no comma")]
    Separator,
    /// Bytes that cannot stand in a header.
    #[error("holds a blank or a character that is not printable ASCII")]
    Unprintable,
    /// An empty or overlong name.
    #[error("has a name that is not 1 to 64 printable ASCII characters")]
    Name,
    /// The token is there already.
    #[error("is a token that stands in the lists already: each token needs one role and one name")]
    Repeated,
    /// The name is there already.
    #[error("has a name that another token has already")]
    NameRepeated,
}

/// The configured tokens. Only digests are kept, so nothing can print a token.
#[derive(Clone, Default)]
pub struct Tokens(Vec<Token>);

#[derive(Clone)]
struct Token {
    digest: TokenDigest,
    caller: Caller,
    named: bool,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.callers()).finish()
    }
}

impl Tokens {
    /// Adds a token as it is configured: `token` or `name:token`.
    pub fn add(&mut self, role: Role, text: &str) -> Result<(), TokenFault> {
        let (name, token) = match text.split_once(':') {
            Some((name, token)) => (Some(name), token),
            None => (None, text),
        };
        check(name, token)?;
        let digest = TokenDigest::of(token.as_bytes());
        if self.0.iter().any(|known| known.digest.is(&digest).into()) {
            return Err(TokenFault::Repeated);
        }
        if name.is_some_and(|name| self.0.iter().any(|known| known.named && known.caller.name == name)) {
            return Err(TokenFault::NameRepeated);
        }
        let caller = Caller { name: name.unwrap_or(role.code()).to_owned(), role };
        self.0.push(Token { digest, caller, named: name.is_some() });
        Ok(())
    }

    /// Whose tokens these are.
    pub fn callers(&self) -> impl Iterator<Item = &Caller> {
        self.0.iter().map(|token| &token.caller)
    }

    /// Finds who a presented token belongs to, in constant time for each configured token.
    pub fn authenticate(&self, presented: &[u8]) -> Option<Caller> {
        let presented = TokenDigest::of(presented);
        self.find(|known| known.is(&presented))
    }

    /// Finds whose token's digest is the wanted one. All are asked, whichever it is; of several the last counts.
    pub fn find(&self, wanted: impl Fn(&TokenDigest) -> Choice) -> Option<Caller> {
        // Past the end: nobody.
        let mut index = u64::MAX;
        for (at, token) in (0u64..).zip(&self.0) {
            index.conditional_assign(&at, wanted(&token.digest));
        }
        usize::try_from(index).ok().and_then(|index| self.0.get(index)).map(|token| token.caller.clone())
    }
}

fn check(name: Option<&str>, token: &str) -> Result<(), TokenFault> {
    if token.is_empty() {
        return Err(TokenFault::Empty);
    }
    if token.contains([':', ',']) || name.is_some_and(|name| name.contains(',')) {
        return Err(TokenFault::Separator);
    }
    if name.is_some_and(|name| {
        !(1..=NAME_LEN_MAX).contains(&name.len()) || !name.bytes().all(|b| (0x20..0x7f).contains(&b))
    }) {
        return Err(TokenFault::Name);
    }
    if !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(TokenFault::Unprintable);
    }
    if token.len() < SECRET_LEN_MIN { Err(TokenFault::Short) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &str = "0123456789abcdef";

    #[test]
    fn tokens_are_found_with_name_and_role() {
        let mut tokens = Tokens::default();
        tokens.add(Role::Admin, "night-watch:aaaaaaaaaaaaaaaa").expect("a token");
        tokens.add(Role::Admin, "bbbbbbbbbbbbbbbb").expect("a token");
        tokens.add(Role::Read, "cccccccccccccccc").expect("a token");
        tokens.add(Role::Read, "dddddddddddddddd").expect("nameless ones may be several");
        let caller = |name: &str, role| Some(Caller { name: name.to_owned(), role });
        assert_eq!(tokens.authenticate(b"aaaaaaaaaaaaaaaa"), caller("night-watch", Role::Admin));
        assert_eq!(tokens.authenticate(b"bbbbbbbbbbbbbbbb"), caller("admin", Role::Admin));
        assert_eq!(tokens.authenticate(b"cccccccccccccccc"), caller("read", Role::Read));
        assert_eq!(tokens.authenticate(b"dddddddddddddddd"), caller("read", Role::Read));
        for wrong in [&b""[..], b"aaaaaaaaaaaaaaa", b"aaaaaaaaaaaaaaaab", b"night-watch:aaaaaaaaaaaaaaaa"] {
            assert_eq!(tokens.authenticate(wrong), None);
        }
        assert_eq!(Tokens::default().authenticate(b""), None, "no token is no open door");
        assert!(!format!("{tokens:?}").contains("aaaa"));
    }

    #[test]
    fn faults_are_told_apart() {
        for (text, fault) in [
            ("", TokenFault::Empty),
            ("name:", TokenFault::Empty),
            ("fifteen-bytes--", TokenFault::Short),
            ("name:fifteen-bytes--", TokenFault::Short),
            ("a:b:0123456789abcdef", TokenFault::Separator),
            ("0123456789,abcdef", TokenFault::Separator),
            ("a,b:0123456789abcdef", TokenFault::Separator),
            (":0123456789abcdef", TokenFault::Name),
            ("n\u{e9}:0123456789abcdef", TokenFault::Name),
            ("0123456789 abcdef", TokenFault::Unprintable),
            ("0123456789abcde\u{e9}", TokenFault::Unprintable),
        ] {
            assert_eq!(Tokens::default().add(Role::Read, text), Err(fault), "{text:?}");
        }
        let mut tokens = Tokens::default();
        tokens.add(Role::Admin, &format!("one:{LONG}")).expect("a token");
        assert_eq!(tokens.add(Role::Read, LONG), Err(TokenFault::Repeated), "in both roles");
        assert_eq!(tokens.add(Role::Admin, &format!("two:{LONG}")), Err(TokenFault::Repeated));
        assert_eq!(tokens.add(Role::Read, &format!("one:{LONG}x")), Err(TokenFault::NameRepeated));
    }
}
