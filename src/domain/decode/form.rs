//! What the first bytes of a body say it is. Headers are hints that nobody reads: they are not signed, and
//! proxies change them.

use std::fmt;

/// What a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Also whatever is not recognised: the JSON passes say best what is wrong with it.
    Json,
    /// RFC 8949.
    Cbor,
    /// One of those around something else.
    Packed(Packing),
}

/// A compressed format. Raw deflate (RFC 1951) is not among them: any bytes at all may begin it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    /// RFC 1952.
    Gzip,
    /// RFC 1950.
    Zlib,
    /// RFC 8878.
    Zstd,
}

impl fmt::Display for Packing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gzip => "gzip",
            Self::Zlib => "zlib",
            Self::Zstd => "zstd",
        })
    }
}

impl Form {
    /// Of a whole body. No two of the rules hold for one body, and none for a JSON object.
    pub(super) fn of(body: &[u8]) -> Self {
        match body {
            _ if begins_gzip(body) => Self::Packed(Packing::Gzip),
            _ if begins_zstd(body) => Self::Packed(Packing::Zstd),
            _ if begins_zlib(body) => Self::Packed(Packing::Zlib),
            // A map, or the tag that only says "this is CBOR". Neither can begin a JSON text.
            [0xa0..=0xbf, ..] | [0xd9, 0xd9, 0xf7, ..] => Self::Cbor,
            _ => Self::Json,
        }
    }
}

/// Whether a gzip member begins here.
pub(super) const fn begins_gzip(bytes: &[u8]) -> bool {
    matches!(bytes, [0x1f, 0x8b, ..])
}

/// The first bytes of a zstd frame that has content.
pub(super) const ZSTD_FRAME: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Whether a zstd frame begins here, or one that decoders skip.
pub(super) fn begins_zstd(bytes: &[u8]) -> bool {
    bytes.starts_with(&ZSTD_FRAME) || matches!(bytes, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..])
}

/// The bit of a zlib header's second byte that says that a dictionary is needed.
pub(super) const PRESET_DICTIONARY: u8 = 0x20;

/// The header of RFC 1950: deflate with a window of 2^8 to 2^15 bytes (0x78 is the usual 32 KiB, small firmware
/// sends less), the two bytes together a multiple of 31.
fn begins_zlib(bytes: &[u8]) -> bool {
    let [method, flags, ..] = bytes else { return false };
    method & 0x0f == 8 && method >> 4 <= 7 && (u16::from(*method) << 8 | u16::from(*flags)).is_multiple_of(31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_tell() {
        use Packing::{Gzip, Zlib, Zstd};
        for (body, form) in [
            (&b""[..], Form::Json),
            (b"{", Form::Json),
            (b"\xef\xbb\xbf{", Form::Json),
            (b"\x1f\x8b", Form::Packed(Gzip)),
            (b"\x1f", Form::Json),
            (b"\x28\xb5\x2f\xfd", Form::Packed(Zstd)),
            (b"\x28\xb5\x2f", Form::Json),
            (b"\x50\x2a\x4d\x18", Form::Packed(Zstd)),
            (b"\x5f\x2a\x4d\x18", Form::Packed(Zstd)),
            (b"\x60\x2a\x4d\x18", Form::Json),
            (b"\xa0", Form::Cbor),
            (b"\xb9\x00\x01", Form::Cbor),
            (b"\xbf", Form::Cbor),
            (b"\xd9\xd9\xf7\xa0", Form::Cbor),
            (b"\xc0", Form::Json),
            (b"\x9f", Form::Json),
        ] {
            assert_eq!(Form::of(body), form, "{body:02x?}");
        }
        // Every window size, at each of the four levels that a header can name.
        for header in
            [0x7801, 0x785e, 0x789c, 0x78da, 0x6881, 0x5885, 0x4889, 0x388d, 0x2891, 0x1895, 0x0899_u16]
        {
            assert_eq!(Form::of(&header.to_be_bytes()), Form::Packed(Zlib), "{header:04x}");
        }
        assert_eq!(
            Form::of(b"\x78\xbb"),
            Form::Packed(Zlib),
            "told, though it cannot be read: with a dictionary"
        );
        // A wrong sum, another method, too large a window.
        for header in [0x789d, 0x7901, 0x881c_u16] {
            assert_eq!(Form::of(&header.to_be_bytes()), Form::Json, "{header:04x}");
        }
    }

    #[test]
    fn nothing_that_can_be_a_json_object_is_taken_for_another_form() {
        for first in [b' ', b'\t', b'\n', b'\r', b'{', 0xef] {
            for second in 0..=u8::MAX {
                assert_eq!(Form::of(&[first, second, b'M', 0x18]), Form::Json, "{first:02x} {second:02x}");
            }
        }
    }
}
