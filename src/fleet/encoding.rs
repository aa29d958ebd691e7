//! The forms in which a batch can travel: JSON or CBOR, plain or compressed.

use std::fmt;
use std::io::{self, Write as _};
use std::str::FromStr;

use flate2::Compression as Level;
use flate2::write::{GzEncoder, ZlibEncoder};

/// Highest level that needs no more than 8 MiB of memory at either end.
const ZSTD_LEVEL: i32 = 19;

/// How a body is packed. Its name is that of the syntax, then that of the compression: `json`, `cbor+zlib`.
/// JSON need not be named: `gzip` is `json+gzip`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Encoding {
    /// CBOR (RFC 8949) with the same names; otherwise JSON.
    pub cbor: bool,
    /// What goes around it.
    pub compression: Option<Compression>,
}

/// A compressed format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// RFC 1952.
    Gzip,
    /// RFC 1950: HTTP's "deflate".
    Zlib,
    /// RFC 8878.
    Zstd,
}

/// The text is not JSON and so has no form in CBOR, or memory ran out.
#[derive(Debug, thiserror::Error)]
#[error("cannot be encoded: {0}")]
pub struct NotEncodable(String);

impl Encoding {
    /// Every form there is.
    pub const ALL: [Self; 8] = [
        Self { cbor: false, compression: None },
        Self { cbor: false, compression: Some(Compression::Gzip) },
        Self { cbor: false, compression: Some(Compression::Zlib) },
        Self { cbor: false, compression: Some(Compression::Zstd) },
        Self { cbor: true, compression: None },
        Self { cbor: true, compression: Some(Compression::Gzip) },
        Self { cbor: true, compression: Some(Compression::Zlib) },
        Self { cbor: true, compression: Some(Compression::Zstd) },
    ];

    /// Packs JSON text. Without CBOR the text goes as it is, whatever it is; in CBOR keys keep their order,
    /// and a key that stands twice stands twice.
    pub fn encode(self, json: &[u8]) -> Result<Vec<u8>, NotEncodable> {
        let syntax = if self.cbor { to_cbor(json)? } else { json.to_vec() };
        match self.compression {
            None => Ok(syntax),
            Some(compression) => compression.pack(&syntax).map_err(|e| NotEncodable(e.to_string())),
        }
    }
}

impl Compression {
    fn pack(self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        match self {
            Self::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), Level::best());
                encoder.write_all(bytes)?;
                encoder.finish()
            }
            Self::Zlib => {
                let mut encoder = ZlibEncoder::new(Vec::new(), Level::best());
                encoder.write_all(bytes)?;
                encoder.finish()
            }
            // Here the frame's header holds the content's size, as that of most senders does.
            Self::Zstd => zstd::bulk::compress(bytes, ZSTD_LEVEL),
        }
    }
}

/// A map of `serde_json` would sort keys and forget doubled ones; CBOR's own value keeps pairs as they come.
fn to_cbor(json: &[u8]) -> Result<Vec<u8>, NotEncodable> {
    let value: ciborium::Value = serde_json::from_slice(json).map_err(|e| NotEncodable(e.to_string()))?;
    let mut bytes = Vec::new();
    ciborium::into_writer(&value, &mut bytes).map_err(|e| NotEncodable(e.to_string()))?;
    Ok(bytes)
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let compression = self.compression.map(|compression| match compression {
            Compression::Gzip => "gzip",
            Compression::Zlib => "zlib",
            Compression::Zstd => "zstd",
        });
        match (self.cbor, compression) {
            (false, None) => f.write_str("json"),
            (false, Some(compression)) => f.write_str(compression),
            (true, None) => f.write_str("cbor"),
            (true, Some(compression)) => write!(f, "cbor+{compression}"),
        }
    }
}

impl FromStr for Encoding {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let name = name.strip_prefix("json+").unwrap_or(name);
        Self::ALL.into_iter().find(|encoding| encoding.to_string() == name).ok_or_else(|| {
            "is none of json, gzip, zlib, zstd, cbor, cbor+gzip, cbor+zlib, cbor+zstd".to_owned()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for encoding in Encoding::ALL {
            assert_eq!(encoding.to_string().parse(), Ok(encoding));
        }
        assert_eq!("json+zstd".parse::<Encoding>().map(|e| e.to_string()), Ok("zstd".to_owned()));
        for wrong in ["", "deflate", "cbor+", "zstd+cbor", "JSON"] {
            assert!(wrong.parse::<Encoding>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_first_bytes_tell_the_form() {
        let json = br#"{"b":1,"a":[-1,2.5,"x",null,true],"b":2}"#;
        let first = |encoding: Encoding| encoding.encode(json).expect("encodes")[..2].to_vec();
        let compressed = |compression| Encoding { cbor: false, compression: Some(compression) };
        assert_eq!(first(compressed(Compression::Gzip)), [0x1f, 0x8b]);
        assert_eq!(first(compressed(Compression::Zlib)), [0x78, 0xda]);
        assert_eq!(first(compressed(Compression::Zstd)), [0x28, 0xb5]);
        let cbor = Encoding { cbor: true, compression: None };
        // RFC 8949 by hand: a map of three pairs, in order, with the key "b" twice.
        let expected = b"\xa3\x61b\x01\x61a\x85\x20\xf9\x41\x00\x61x\xf6\xf5\x61b\x02";
        assert_eq!(cbor.encode(json).expect("encodes"), expected);
        assert!(cbor.encode(b"{").is_err());
        assert_eq!(Encoding::default().encode(b"{").expect("goes as it is"), b"{");
    }
}
