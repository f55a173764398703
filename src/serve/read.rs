//! Bodies, read within limits of size and time.

use axum::body::Body;
use axum::extract::Request;
use axum::http::header;
use tokio::time::timeout;
use tokio_stream::StreamExt;

use super::error::ApiError;
use super::limits::Limits;
use super::openai::fields::Fields;

/// The parameters in a request's body.
pub(super) async fn fields(request: Request, limits: &Limits) -> Result<Fields, ApiError> {
    let length = request.headers().get(header::CONTENT_LENGTH);
    let length: Option<usize> = length.and_then(|value| value.to_str().ok()?.parse().ok());
    let is_large = length.is_some_and(|length| length > limits.body_bytes_max);
    let read = read(request.into_body(), limits.body_bytes_max, is_large);
    let body = timeout(limits.body_timeout, read).await.map_err(|_| ApiError::body_timeout())??;
    Fields::parse(&body)
}

/// Reads a body. One that is too large is read a bit further, so that a client that is still writing sees the answer;
/// nothing of it is kept.
async fn read(body: Body, bytes_max: usize, is_large: bool) -> Result<Vec<u8>, ApiError> {
    let mut frames = body.into_data_stream();
    let (mut bytes, mut seen, mut is_large) = (Vec::new(), 0usize, is_large);
    while let Some(frame) = frames.next().await {
        let frame = frame.map_err(|_| ApiError::bad("the body broke off"))?;
        seen = seen.saturating_add(frame.len());
        is_large |= seen > bytes_max;
        if !is_large {
            bytes.extend_from_slice(&frame);
        } else if seen > bytes_max.saturating_mul(4) {
            break;
        }
    }
    if is_large { Err(ApiError::too_large(bytes_max)) } else { Ok(bytes) }
}
