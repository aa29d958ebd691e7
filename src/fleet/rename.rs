//! Device ids in a body that was encoded beforehand.

use std::io::Read as _;

use ciborium::Value;

use super::encoding::{Compression, Encoding};

/// Most bytes that are unpacked: what holds more is no body of a tracker.
const UNPACKED_BYTES_MAX: u64 = 1 << 20;

/// The body with other device ids, each `(from, to)`; whether one was there. `None` where it cannot be told that the rest would
/// stay as it is: only a body is changed that [`Encoding`] makes again, byte for byte, of what it holds.
pub fn rename(body: &[u8], ids: &[(String, String)]) -> Option<(Vec<u8>, bool)> {
    let Some(compression) = compression_of(body) else { return rename_plain(body, ids) };
    let inner = unpack(body, compression)?;
    let form = Encoding { cbor: false, compression: Some(compression) };
    if form.encode(&inner).ok()? != body {
        return None;
    }
    let (renamed, found) = rename_plain(&inner, ids)?;
    Some((form.encode(&renamed).ok()?, found))
}

fn compression_of(body: &[u8]) -> Option<Compression> {
    match body {
        [0x1f, 0x8b, ..] => Some(Compression::Gzip),
        [0x78, 0x01 | 0x5e | 0x9c | 0xda, ..] => Some(Compression::Zlib),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Compression::Zstd),
        _ => None,
    }
}

fn unpack(body: &[u8], compression: Compression) -> Option<Vec<u8>> {
    let mut inner = Vec::new();
    match compression {
        Compression::Gzip => {
            flate2::read::GzDecoder::new(body).take(UNPACKED_BYTES_MAX).read_to_end(&mut inner).ok()?;
        }
        Compression::Zlib => {
            flate2::read::ZlibDecoder::new(body).take(UNPACKED_BYTES_MAX).read_to_end(&mut inner).ok()?;
        }
        Compression::Zstd => {
            let decoder = zstd::stream::read::Decoder::with_buffer(body).ok()?;
            decoder.take(UNPACKED_BYTES_MAX).read_to_end(&mut inner).ok()?;
        }
    }
    Some(inner)
}

/// In JSON the ids stand in quotes, whatever else the text is; in CBOR they are whole strings.
fn rename_plain(body: &[u8], ids: &[(String, String)]) -> Option<(Vec<u8>, bool)> {
    if let Ok(text) = std::str::from_utf8(body) {
        let (mut text, mut found) = (text.to_owned(), false);
        for (from, to) in ids {
            let from = format!("\"{from}\"");
            found |= text.contains(&from);
            text = text.replace(&from, &format!("\"{to}\""));
        }
        return Some((text.into_bytes(), found));
    }
    let mut value: Value = ciborium::from_reader(body).ok()?;
    let again = |value: &Value| {
        let mut bytes = Vec::new();
        ciborium::into_writer(value, &mut bytes).ok().map(|()| bytes)
    };
    if again(&value)? != body {
        return None;
    }
    let found = rename_value(&mut value, ids);
    Some((again(&value)?, found))
}

/// Values only, at the top alone: there the batch names its device.
fn rename_value(value: &mut Value, ids: &[(String, String)]) -> bool {
    let Value::Map(members) = value else { return false };
    let mut found = false;
    for (_, value) in members {
        if let Value::Text(text) = value
            && let Some((_, to)) = ids.iter().find(|(from, _)| from == text)
        {
            text.clone_from(to);
            found = true;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const BATCH: &str = r#"{"device_id":"d1","batch_id":"a","records":[{"seq":1,"lat":21.5}]}"#;

    #[test]
    fn every_form_is_renamed_as_its_text_is() {
        let ids = [("d1".to_owned(), "d1-0a1b2c3d".to_owned())];
        let renamed = BATCH.replace("d1", "d1-0a1b2c3d");
        for encoding in Encoding::ALL {
            let body = encoding.encode(BATCH.as_bytes()).expect("JSON");
            let expected = encoding.encode(renamed.as_bytes()).expect("JSON");
            assert_eq!(rename(&body, &ids), Some((expected, true)), "{encoding}");
            assert_eq!(rename(&body, &[("x".to_owned(), "y".to_owned())]), Some((body, false)), "{encoding}");
        }
    }

    #[test]
    fn what_would_not_come_out_again_is_left() {
        let ids = [("d1".to_owned(), "d2".to_owned())];
        let gzip = Encoding { cbor: false, compression: Some(Compression::Gzip) };
        let mut two_members = gzip.encode(BATCH.as_bytes()).expect("JSON");
        two_members.extend(gzip.encode(b" ").expect("packs"));
        // A map of no stated length; one whose length is spelled in a byte more than needed.
        for body in
            [&two_members[..], b"\xbf\x61\x80\x62d1\xff", b"\xbf\x69device_id\x62d1\xff", b"\x1f\x8b\x08"]
        {
            assert_eq!(rename(body, &ids), None, "{body:02x?}");
        }
        let bomb = gzip.encode(&vec![b' '; 2 << 20]).expect("packs");
        assert_eq!(rename(&bomb, &ids), None);
    }
}
