//! Certificates from files: bounded, and of a version that this build reads.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::{CERTIFICATE_SCHEMA, Certificate};
use crate::input;

/// Largest file read, in bytes.
pub const CERTIFICATE_BYTES_MAX: u64 = 64 << 20;

/// Of a document, what says whether to read on. The rest is passed over without being kept.
#[derive(Deserialize)]
struct Head {
    schema: Option<String>,
}

impl Certificate {
    /// Reads a file. Why it is none, in one line without the path.
    pub fn read(path: &Path) -> Result<Certificate, String> {
        let text = input::read_text(path, CERTIFICATE_BYTES_MAX).map_err(|e| e.to_string())?;
        Certificate::parse(&text)
    }

    /// Reads the text of a document.
    pub fn parse(text: &str) -> Result<Certificate, String> {
        let not = |why: String| format!("not a certificate: {why}");
        let head: Head = serde_json::from_str(text).map_err(|e| not(e.to_string()))?;
        let schema = head.schema.ok_or_else(|| not("no schema".into()))?;
        let newer = CERTIFICATE_SCHEMA.check(&schema).map_err(|e| not(e.to_string()))?;
        if !newer {
            return serde_json::from_str(text).map_err(|e| not(e.to_string()));
        }
        // A newer minor version adds fields, and nothing says where: what is refused is looked for in its parts no further.
        let mut value: Value = serde_json::from_str(text).map_err(|e| not(e.to_string()))?;
        if let Value::Object(fields) = &mut value {
            fields.retain(|name, _| FIELDS.contains(&name.as_str()));
        }
        serde_json::from_value(value)
            .map_err(|e| format!("{schema} is newer than this version of lockstep reads: {e}"))
    }
}

/// The fields of this version.
const FIELDS: [&str; 22] = [
    "schema",
    "verdict",
    "reasons",
    "server",
    "witness",
    "controls",
    "levels",
    "arms",
    "beside",
    "clusters",
    "smallest",
    "findings",
    "divergences",
    "samples",
    "power",
    "requests",
    "tokens",
    "seconds",
    "answers",
    "settings",
    "scope",
    "tool",
];

#[cfg(test)]
pub(in crate::certify) mod tests {
    use serde_json::json;

    use super::*;

    /// A document with nothing in it.
    pub(in crate::certify) fn empty() -> Value {
        let control = json!({
            "what": "", "passed": null, "differing": 0, "of": 0, "requests": 0, "levels": [], "note": null,
        });
        json!({
            "schema": CERTIFICATE_SCHEMA.to_string(),
            "verdict": "undecided",
            "reasons": [],
            "server": {
                "url": "http://host/v1", "model": "m", "identity": [], "context_max": null, "abilities": [],
                "resolution": null, "tokens_named_by": "token ids",
            },
            "witness": {
                "max_in_flight": 0, "by": "none", "witnessed": 0, "unwitnessed": 0, "contradicted": 0,
                "load_when_idle": null,
            },
            "controls": { "positive": control.clone(), "negative": control },
            "levels": [],
            "arms": [],
            "beside": [],
            "clusters": null,
            "smallest": null,
            "findings": [],
            "divergences": [],
            "samples": { "prompts": [], "batch_sizes": [] },
            "power": { "trials": 0, "rate": 0.05, "detection": 0.0, "trials_for_99": 90, "rate_seen_at_95": null },
            "requests": 0,
            "tokens": 0,
            "seconds": 0.0,
            "answers": [],
            "settings": {
                "seed": 0, "concurrency": [4], "prompts": 2, "prompt_tokens": [17], "nonce": 0, "arms": [],
                "alternatives": 5, "answers_min": 29, "repeats": 2, "rounds": 1, "answer_tokens": 32,
                "max_requests": 900, "max_tokens": 600_000, "timeout_s": 60.0, "seconds_max": 600.0,
            },
            "scope": "",
            "tool": { "version": "0", "rev": null },
        })
    }

    #[test]
    fn what_is_written_is_read_and_every_field_is_known() {
        let certificate = Certificate::parse(&empty().to_string()).expect("a certificate");
        let written = serde_json::to_value(&certificate).expect("a document");
        assert_eq!(written, empty());
        let names: Vec<&String> = written.as_object().expect("an object").keys().collect();
        let mut fields = FIELDS;
        fields.sort_unstable();
        assert_eq!(names, fields);
    }

    #[test]
    fn other_documents_and_other_versions_are_refused_with_the_reason() {
        let with = |schema: Value| {
            let mut document = empty();
            document["schema"] = schema;
            document.to_string()
        };
        let refused = [
            ("{\"a\": [1".to_owned(), "not a certificate: EOF"),
            ("{}".into(), "no schema"),
            (with(json!(2)), "not a certificate: invalid type"),
            (with(json!("lockstep.case/2.0")), "expected lockstep.certificate"),
            (with(json!("lockstep.certificate/1.0")), "too old"),
            (with(json!("lockstep.certificate/3.0")), "too new"),
            (r#"{"schema":"lockstep.certificate/2.0"}"#.into(), "missing field"),
        ];
        for (text, why) in refused {
            let said = Certificate::parse(&text).expect_err(&text);
            assert!(said.contains(why), "{said}");
        }
    }

    #[test]
    fn what_a_newer_minor_version_adds_is_passed_over() {
        let mut document = empty();
        document["more"] = json!(1);
        assert!(Certificate::parse(&document.to_string()).is_err());
        document["schema"] = json!("lockstep.certificate/2.9");
        assert!(Certificate::parse(&document.to_string()).is_ok());
        document["server"]["more"] = json!(1);
        let said = Certificate::parse(&document.to_string()).expect_err("a part that is not known");
        assert!(said.starts_with("lockstep.certificate/2.9 is newer"), "{said}");
    }
}
