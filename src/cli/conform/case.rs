//! Cases as data: the format of `fixtures/cases/README.md`, read strictly, so that a misspelt key is a fault and
//! not a check that never runs.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::fleet::Encoding;

/// The cases that the binary brings along.
const BUILT_IN: &[(&str, &str)] = &[
    ("telemetry.json", include_str!("../../../fixtures/cases/telemetry.json")),
    ("encodings.json", include_str!("../../../fixtures/cases/encodings.json")),
    ("protocol.json", include_str!("../../../fixtures/cases/protocol.json")),
];

/// Longest body that `pad_to` makes.
const PADDED_BYTES_MAX: usize = 64 << 20;
/// Most records that `repeat` makes.
const REPEATED_MAX: u64 = 1_000_000;

/// A history of one or a few devices, each step with the right answer.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) name: String,
    /// Where the fault was reported, or what says so.
    pub(super) source: String,
    pub(super) ids: Ids,
    pub(super) steps: Vec<Step>,
}

/// Whether a run may give the devices of a case other ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ids {
    /// Where that is seen to keep the meaning.
    #[default]
    Judged,
    /// Yes.
    Fresh,
    /// No: the ids are the subject.
    AsWritten,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Upload(Upload),
    State { device: String, status: Vec<u16>, expect: Value },
    Track { device: String, expect: TrackExpect },
    Reset { device: String, body: Value, expect: Expect },
}

/// A signed upload.
#[derive(Clone, Debug)]
pub(super) struct Upload {
    /// Who signs, and who `X-Device-Id` names.
    pub(super) signer: String,
    pub(super) content: Content,
    /// How the content is packed.
    pub(super) encoding: Encoding,
    /// White space is added behind up to this size.
    pub(super) pad_to: usize,
    pub(super) chunked: bool,
    /// Headers other than the usual ones: the lines of each; none, it is left out.
    pub(super) headers: Vec<(String, Vec<String>)>,
    pub(super) expect: Expect,
}

#[derive(Clone, Debug)]
pub(super) enum Content {
    Text(String),
    Bytes(Vec<u8>),
}

/// The answer that is right.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expect {
    #[serde(deserialize_with = "one_or_several")]
    pub(super) status: Vec<u16>,
    #[serde(default)]
    pub(super) body: Value,
    /// Of each header its value, or `true`: it is there, or null: it is not.
    #[serde(default)]
    pub(super) headers: Map<String, Value>,
    /// The body has no byte.
    #[serde(default)]
    pub(super) empty: bool,
}

/// The track that is right.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TrackExpect {
    /// Every `[epoch_id, seq]`, in order.
    pub(super) keys: Value,
    /// A subset of each record, in order.
    pub(super) records: Option<Vec<Value>>,
}

fn one_or_several<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<u16>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a status, or a list of them")]
    enum Statuses {
        One(u16),
        Several(Vec<u16>),
    }
    Ok(match Statuses::deserialize(deserializer)? {
        Statuses::One(status) => vec![status],
        Statuses::Several(statuses) => statuses,
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseFile {
    name: String,
    source: String,
    #[serde(default)]
    ids: Ids,
    steps: Vec<StepFile>,
}

/// A step as it is written: the keys that are there say which one it is.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct StepFile {
    upload: Option<Map<String, Value>>,
    #[serde(alias = "json")]
    raw: Option<String>,
    raw_b64: Option<String>,
    repeat: Option<u64>,
    encoding: Option<String>,
    pad_to: usize,
    chunked: bool,
    r#as: Option<String>,
    headers: Map<String, Value>,
    state: Option<String>,
    status: Option<u16>,
    track: Option<String>,
    reset: Option<String>,
    body: Option<Value>,
    expect: Option<Value>,
}

/// The cases of the binary.
pub(super) fn built_in() -> Result<Vec<Case>, String> {
    let files = BUILT_IN.iter().map(|(name, text)| read(text).map_err(|fault| format!("{name}: {fault}")));
    Ok(files.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

/// The cases of a file's text.
pub(super) fn read(text: &str) -> Result<Vec<Case>, String> {
    let cases: Vec<CaseFile> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    cases.into_iter().map(check_case).collect()
}

fn check_case(case: CaseFile) -> Result<Case, String> {
    let CaseFile { name, source, ids, steps } = case;
    let checked = (1..)
        .zip(steps)
        .map(|(at, step)| check_step(step).map_err(|fault| format!("case {name:?}, step {at}: {fault}")));
    let steps: Vec<Step> = checked.collect::<Result<_, _>>()?;
    if steps.is_empty() {
        return Err(format!("case {name:?} has no steps"));
    }
    Ok(Case { name, source, ids, steps })
}

fn check_step(mut step: StepFile) -> Result<Step, String> {
    let kinds = [&step.state, &step.track, &step.reset].iter().filter(|device| device.is_some()).count();
    let contents = usize::from(step.upload.is_some())
        + usize::from(step.raw.is_some())
        + usize::from(step.raw_b64.is_some());
    if kinds + contents != 1 {
        return Err("needs one of upload, raw, raw_b64, state, track, reset".to_owned());
    }
    let expect = step.expect.take().ok_or("needs expect")?;
    if let Some(device) = step.state {
        let status = vec![step.status.unwrap_or(200)];
        Ok(Step::State { device, status, expect })
    } else if let Some(device) = step.track {
        Ok(Step::Track { device, expect: of(expect)? })
    } else if let Some(device) = step.reset {
        Ok(Step::Reset { device, body: step.body.unwrap_or_default(), expect: of(expect)? })
    } else {
        check_upload(step, of(expect)?).map(Step::Upload)
    }
}

fn of<T: serde::de::DeserializeOwned>(expect: Value) -> Result<T, String> {
    serde_json::from_value(expect).map_err(|error| format!("expect: {error}"))
}

fn check_upload(step: StepFile, expect: Expect) -> Result<Upload, String> {
    let signer = step.r#as.ok_or("needs as, the device that signs")?;
    let encoding = match &step.encoding {
        None => Encoding::default(),
        Some(name) => name.parse().map_err(|fault| format!("encoding {name} {fault}"))?,
    };
    if encoding != Encoding::default() && step.raw_b64.is_some() {
        return Err("raw_b64 is sent as it is, without an encoding".to_owned());
    }
    if step.repeat.is_some() && step.upload.is_none() {
        return Err("repeat goes with upload".to_owned());
    }
    let content = match (step.upload, step.raw, step.raw_b64) {
        (Some(mut batch), ..) => {
            if let Some(times) = step.repeat {
                repeat(&mut batch, times)?;
            }
            Content::Text(Value::Object(batch).to_string())
        }
        (_, Some(text), _) => Content::Text(text),
        (_, _, Some(coded)) => {
            Content::Bytes(STANDARD.decode(coded).map_err(|error| format!("raw_b64: {error}"))?)
        }
        (None, None, None) => return Err("has no content".to_owned()),
    };
    if let Content::Text(text) = &content {
        encoding.encode(text.as_bytes()).map_err(|error| error.to_string())?;
    }
    if step.pad_to > PADDED_BYTES_MAX {
        return Err(format!("pad_to is more than {PADDED_BYTES_MAX}"));
    }
    let headers = step.headers.into_iter().map(|(name, value)| check_header(name, value));
    Ok(Upload {
        signer,
        content,
        encoding,
        pad_to: step.pad_to,
        chunked: step.chunked,
        headers: headers.collect::<Result<_, _>>()?,
        expect,
    })
}

/// Makes one record stand so many times, its `seq` rising by one.
fn repeat(batch: &mut Map<String, Value>, times: u64) -> Result<(), String> {
    let fault = || format!("repeat is at most {REPEATED_MAX} and takes one record with a seq");
    let Some(Value::Array(records)) = batch.get_mut("records") else { return Err(fault()) };
    let [Value::Object(record)] = records.as_slice() else { return Err(fault()) };
    let first = record.get("seq").and_then(Value::as_u64).ok_or_else(fault)?;
    if times > REPEATED_MAX {
        return Err(fault());
    }
    let mut record = record.clone();
    *records = (0..times)
        .map(|more| {
            record.insert("seq".to_owned(), first.saturating_add(more).into());
            Value::Object(record.clone())
        })
        .collect();
    Ok(())
}

fn check_header(name: String, value: Value) -> Result<(String, Vec<String>), String> {
    let fault = || format!("header {name} is no text, list of texts or null that HTTP could carry");
    let lines = match value {
        Value::Null => Vec::new(),
        Value::String(line) => vec![line],
        several => serde_json::from_value::<Vec<String>>(several).map_err(|_| fault())?,
    };
    let sendable = HeaderName::from_bytes(name.as_bytes()).is_ok()
        && lines.iter().all(|line| HeaderValue::from_bytes(line.as_bytes()).is_ok());
    if sendable { Ok((name, lines)) } else { Err(fault()) }
}

impl Upload {
    /// A batch without records, to learn whether the gateway takes this device's signature.
    pub(super) fn heartbeat(device: &str) -> Self {
        let batch = format!(r#"{{"device_id":"{device}","batch_id":"heartbeat","records":[]}}"#);
        Self {
            signer: device.to_owned(),
            content: Content::Text(batch),
            encoding: Encoding::default(),
            pad_to: 0,
            chunked: false,
            headers: Vec::new(),
            expect: Expect { status: vec![200], body: Value::Null, headers: Map::new(), empty: false },
        }
    }

    /// The body as it is signed and sent.
    pub(super) fn body(&self) -> Vec<u8> {
        let mut body = match &self.content {
            // That it encodes was checked when it was read, and other ids change nothing about that.
            Content::Text(text) => self.encoding.encode(text.as_bytes()).unwrap_or_default(),
            Content::Bytes(bytes) => bytes.clone(),
        };
        if body.len() < self.pad_to {
            body.resize(self.pad_to, b' ');
        }
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_cases_are_well_formed() {
        let cases = built_in().expect("well-formed");
        assert!(cases.len() > 60, "{}", cases.len());
        for case in &cases {
            let same = cases.iter().filter(|other| other.name == case.name).count();
            assert_eq!(same, 1, "{} stands {same} times", case.name);
            assert!(!case.source.is_empty(), "{}", case.name);
        }
    }

    #[test]
    fn a_record_is_repeated_with_rising_seqs() {
        let step = r#"{"upload":{"records":[{"seq":7,"x":1}]},"repeat":2,"as":"d","expect":{"status":200}}"#;
        let cases = read(&format!(r#"[{{"name":"n","source":"s","steps":[{step}]}}]"#)).expect("a case");
        let Step::Upload(upload) = &cases[0].steps[0] else { panic!("an upload") };
        assert_eq!(upload.body(), br#"{"records":[{"seq":7,"x":1},{"seq":8,"x":1}]}"#);
    }

    #[test]
    fn what_is_misspelt_is_a_fault() {
        let one = |step: &str| read(&format!(r#"[{{"name":"n","source":"s","steps":[{step}]}}]"#));
        assert!(one(r#"{"state":"d","expect":{}}"#).is_ok());
        for (step, word) in [
            (r#"{"state":"d","expct":{}}"#, "expct"),
            (r#"{"state":"d"}"#, "needs expect"),
            (r#"{"state":"d","track":"d","expect":{}}"#, "needs one of"),
            (r#"{"expect":{}}"#, "needs one of"),
            (r#"{"raw":"","expect":{"status":200}}"#, "needs as"),
            (r#"{"raw":"","as":"d","expect":{"state":200}}"#, "state"),
            (r#"{"raw":"","as":"d","expect":{"status":"200"}}"#, "a status"),
            (r#"{"raw":"","as":"d","encoding":"lzma","expect":{"status":200}}"#, "lzma"),
            (r#"{"raw":"{","as":"d","encoding":"cbor","expect":{"status":200}}"#, "encoded"),
            (r#"{"raw_b64":"*","as":"d","expect":{"status":200}}"#, "raw_b64"),
            (r#"{"raw":"","as":"d","headers":{"X":"a\nb"},"expect":{"status":200}}"#, "header X"),
            (r#"{"raw":"","as":"d","headers":{"X":7},"expect":{"status":200}}"#, "header X"),
            (r#"{"upload":{"records":[]},"repeat":2,"as":"d","expect":{"status":200}}"#, "repeat"),
            (r#"{"raw":"","repeat":2,"as":"d","expect":{"status":200}}"#, "repeat"),
            (r#"{"track":"d","expect":{}}"#, "keys"),
        ] {
            let fault = one(step).expect_err(step);
            assert!(fault.contains(word), "{fault}");
        }
        assert!(read(r#"[{"name":"n","source":"s","steps":[]}]"#).is_err());
    }
}
