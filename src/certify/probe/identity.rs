//! Who answers, and under which model name.

use serde::Deserialize;

use super::super::error::CertifyError;
use super::super::options::Target;
use super::super::wire::client::Place;
use super::super::wire::{Client, WireError};

/// Longest name of a model, in bytes.
const MODEL_BYTES_MAX: usize = 512;
/// Models looked at.
const MODELS_MAX: usize = 1000;

/// A server's word on itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    pub(crate) model: String,
    pub(crate) names: Vec<String>,
    pub(crate) context_max: Option<u64>,
    pub(crate) notes: Vec<String>,
}

#[derive(Deserialize)]
struct Models {
    data: Vec<Model>,
}

#[derive(Deserialize)]
struct Model {
    id: String,
    owned_by: Option<String>,
    root: Option<String>,
    max_model_len: Option<u64>,
    meta: Option<Meta>,
}

#[derive(Deserialize)]
struct Meta {
    n_ctx: Option<u64>,
}

/// The part of llama.cpp's `/props` that matters here.
#[derive(Deserialize)]
struct Props {
    default_generation_settings: Option<Meta>,
    total_slots: Option<u64>,
    build_info: Option<String>,
}

/// vLLM's `/version`.
#[derive(Deserialize)]
struct Version {
    version: String,
}

/// Asks for models, and for what some servers say of themselves.
pub(crate) fn identify(client: &Client, target: &Target) -> Result<Identity, CertifyError> {
    let url = client.address().shown();
    let unusable = |why: &WireError| CertifyError::Unusable(format!("{url}: {why}"));
    let mut identity = Identity::default();
    // Why there is no list.
    let mut unlisted = None;
    let listed = match client.get(Place::Base, "models") {
        Ok((text, server)) => {
            identity.names.extend(server.map(|name| format!("server header {}", one_line(&name))));
            match serde_json::from_str::<Models>(&text) {
                Ok(models) => models.data,
                Err(_) => {
                    unlisted = Some("an answer that is no list of models".into());
                    Vec::new()
                }
            }
        }
        Err(error @ (WireError::Transport(_) | WireError::Timeout)) => {
            return Err(unusable(&error));
        }
        Err(error @ WireError::Status { code: 401 | 403, .. }) => return Err(unusable(&error)),
        Err(error) => {
            unlisted = Some(error.to_string());
            Vec::new()
        }
    };
    let mut listed = listed.into_iter().take(MODELS_MAX);
    let found = match &target.model {
        None => listed.next(),
        Some(name) => listed.find(|model| &model.id == name),
    };
    match (&target.model, &found) {
        (Some(name), _) => identity.model.clone_from(name),
        (None, Some(model)) => identity.model.clone_from(&model.id),
        (None, None) => {
            let why = unlisted.unwrap_or_else(|| "an empty list".into());
            return Err(CertifyError::Unusable(format!(
                "{url}: lists no models ({why}): is this the address up to and with /v1? Else name a model with --model"
            )));
        }
    }
    let length = identity.model.len();
    if length > MODEL_BYTES_MAX {
        let why = format!("a model name of {length} bytes, at most {MODEL_BYTES_MAX} are read");
        return Err(CertifyError::Unusable(format!("{url}: {why}")));
    }
    if let Some(model) = found {
        let of = |what: &str, name: Option<String>| {
            name.map(|name| format!("{what} {}", one_line(&name)))
        };
        identity.names.extend(of("owned by", model.owned_by));
        identity.names.extend(of("root", model.root));
        identity.context_max = model.max_model_len.or(model.meta.and_then(|meta| meta.n_ctx));
    } else {
        identity.notes.push("the model is not among those that the server lists".into());
    }
    more(client, &mut identity);
    Ok(identity)
}

/// What vLLM and llama.cpp add elsewhere. Other servers have no such pages, which is no error.
fn more(client: &Client, identity: &mut Identity) {
    if let Ok((text, _)) = client.get(Place::Root, "version")
        && let Ok(version) = serde_json::from_str::<Version>(&text)
    {
        identity.names.push(format!("version {}", one_line(&version.version)));
    }
    if let Ok((text, _)) = client.get(Place::Root, "props")
        && let Ok(props) = serde_json::from_str::<Props>(&text)
    {
        identity.names.extend(props.build_info.map(|build| format!("build {}", one_line(&build))));
        identity.names.extend(props.total_slots.map(|slots| format!("{slots} slots")));
        let context = props.default_generation_settings.and_then(|settings| settings.n_ctx);
        identity.context_max = context.or(identity.context_max);
    }
}

/// A server's text, short and without control characters.
fn one_line(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(80).collect()
}
