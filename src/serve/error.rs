//! Errors: of the server, and those that a client gets, in the shape that OpenAI's clients read.

use std::fmt;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::engine::EngineError;

/// A server could not be started, or ended otherwise than by being told to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServeError {
    /// The options are of no use: one line.
    BadInput(String),
    /// The address could not be bound, or the system refused something else.
    Unavailable(String),
    /// The engine failed.
    Engine(EngineError),
    /// Code of the server panicked.
    Panicked(String),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServeError::BadInput(why) | ServeError::Unavailable(why) => f.write_str(why),
            ServeError::Engine(error) => error.fmt(f),
            ServeError::Panicked(why) => write!(f, "the server {why}"),
        }
    }
}

impl std::error::Error for ServeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ServeError::Engine(error) => Some(error),
            _ => None,
        }
    }
}

impl From<EngineError> for ServeError {
    fn from(error: EngineError) -> ServeError {
        match error {
            EngineError::BadInput(why) => ServeError::BadInput(why),
            error => ServeError::Engine(error),
        }
    }
}

/// What a client is told instead of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ApiError {
    pub(super) status: StatusCode,
    message: String,
    param: Option<String>,
    code: Option<&'static str>,
}

#[derive(Serialize)]
struct Envelope<'a> {
    error: Wire<'a>,
}

#[derive(Serialize)]
struct Wire<'a> {
    message: &'a str,
    r#type: &'static str,
    param: Option<&'a str>,
    code: Option<&'static str>,
}

/// Seconds after which a client that was sent away may come again.
const RETRY_AFTER_S: &str = "1";

impl ApiError {
    fn of(status: StatusCode, code: Option<&'static str>, message: impl Into<String>) -> ApiError {
        ApiError { status, message: message.into(), param: None, code }
    }

    /// The request is wrong as a whole.
    pub(super) fn bad(message: impl Into<String>) -> ApiError {
        ApiError::of(StatusCode::BAD_REQUEST, None, message)
    }

    /// A parameter is wrong.
    pub(super) fn param(param: &str, message: impl Into<String>) -> ApiError {
        ApiError { param: Some(param.into()), ..ApiError::bad(message) }
    }

    /// A parameter asks for what the server does not have.
    pub(super) fn unsupported(param: &str) -> ApiError {
        let message = format!("{param} is not supported by this server");
        ApiError { code: Some("unsupported_parameter"), ..ApiError::param(param, message) }
    }

    /// Prompt and output together are too long.
    pub(super) fn too_long(message: impl Into<String>) -> ApiError {
        let code = Some("context_length_exceeded");
        ApiError { code, ..ApiError::param("max_tokens", message) }
    }

    /// Another model than the one that is served.
    pub(super) fn no_such_model(name: &str) -> ApiError {
        let message = format!("the model {name:?} does not exist");
        let code = Some("model_not_found");
        ApiError {
            param: Some("model".into()),
            ..ApiError::of(StatusCode::NOT_FOUND, code, message)
        }
    }

    pub(super) fn not_found(path: &str) -> ApiError {
        ApiError::of(StatusCode::NOT_FOUND, Some("not_found"), format!("nothing is at {path}"))
    }

    pub(super) fn method_not_allowed() -> ApiError {
        let message = "this method is not allowed here";
        ApiError::of(StatusCode::METHOD_NOT_ALLOWED, Some("method_not_allowed"), message)
    }

    pub(super) fn too_large(bytes_max: usize) -> ApiError {
        let message = format!("the body is larger than {bytes_max} bytes");
        ApiError::of(StatusCode::PAYLOAD_TOO_LARGE, Some("body_too_large"), message)
    }

    pub(super) fn body_timeout() -> ApiError {
        let message = "the body did not come in time";
        ApiError::of(StatusCode::REQUEST_TIMEOUT, Some("body_timeout"), message)
    }

    pub(super) fn timeout() -> ApiError {
        let message = "the answer was not ready in time";
        ApiError::of(StatusCode::GATEWAY_TIMEOUT, Some("timeout"), message)
    }

    pub(super) fn too_slow() -> ApiError {
        ApiError::failed("the answer was taken too slowly")
    }

    pub(super) fn busy() -> ApiError {
        let message = "too many requests are waiting; try again later";
        ApiError::of(StatusCode::TOO_MANY_REQUESTS, Some("queue_full"), message)
    }

    pub(super) fn stopping() -> ApiError {
        let message = "the server is shutting down";
        ApiError::of(StatusCode::SERVICE_UNAVAILABLE, Some("shutting_down"), message)
    }

    pub(super) fn failed(message: impl Into<String>) -> ApiError {
        ApiError::of(StatusCode::INTERNAL_SERVER_ERROR, None, message)
    }

    /// The error as JSON.
    pub(super) fn json(&self) -> String {
        let r#type = match self.status.as_u16() {
            429 => "rate_limit_error",
            408 | 504 => "timeout_error",
            500.. => "server_error",
            _ => "invalid_request_error",
        };
        let error =
            Wire { message: &self.message, r#type, param: self.param.as_deref(), code: self.code };
        serde_json::to_string(&Envelope { error }).unwrap_or_default()
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.json()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_S));
        }
        response
    }
}
