//! The fixture behind an OpenAI-compatible endpoint.
//!
//! One thread owns a [live engine](crate::engine::live::Live), into which the requests of all connections go; handlers
//! write to it and wait for news. What is sent back is what the engine computed: every log-probability is written as
//! the f32 that it is, so that two answers can be compared bit for bit. A request with a seed draws by it alone; one
//! without, at a temperature above 0, draws by its place in the order of all requests since the start.
//!
//! | path | what it does |
//! | --- | --- |
//! | `/v1/completions` | texts or token ids, `n`, `echo`, `logprobs`, `seed`, `stop`, `stream`; of vLLM's parameters `top_k`, `min_p`, `repetition_penalty`, `ignore_eos`, `stop_token_ids`, `cache_salt`, `return_token_ids`, `return_tokens_as_token_ids`, `add_special_tokens` |
//! | `/v1/chat/completions` | the same for a conversation, in one fixed template (`chat`) |
//! | `/v1/models`, `/v1/models/NAME` | the model that is served |
//! | `/tokenize`, `/detokenize` | text to token ids and back |
//! | `/health`, `/metrics` | whether it serves; numbers under vLLM's names |
//!
//! A parameter that is not supported, or not known, is refused by name, unless it asks for nothing or is about the client
//! alone. A token that is no text of its own is listed as `bytes:\x…`, one without text as `token_id:…`.
//!
//! Everything that a client decides has a [limit](Limits). A client that goes away ends its request. There is no state
//! beyond requests in flight, the prefix cache and counters.

mod answer;
mod chat;
mod completions;
mod connection;
mod engine_thread;
mod error;
mod exchange;
mod limits;
mod metrics;
mod model;
mod openai;
mod options;
mod read;
mod running;
mod text;
mod tokenize;

use std::net::TcpListener;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};

use crate::device::Device;
use crate::engine::DeviceModel;
use crate::engine::live::Live;
use crate::fixture::Fixture;
use crate::record::Held;
use crate::unwind::guarded;
use crate::world::World;

use engine_thread::{Desk, Gauges, Letter, Worker};
pub use error::ServeError;
use exchange::seconds;
pub use limits::Limits;
use model::{App, OfFixture};
pub use options::Options;
pub use running::{Ended, Running};

/// Starts servers.
pub struct Server;

impl Server {
    /// Serves a fixture until it is told to stop. When this returns, the address is bound and the engine is made.
    pub fn start<D>(fixture: Fixture<D>, options: Options) -> Result<Running, ServeError>
    where
        D: Device + Send + Sync + 'static,
        DeviceModel<D>: Send + Sync,
    {
        options.limits.validate().map_err(ServeError::BadInput)?;
        let world = options.world(&fixture)?;
        let listener = bind(&options)?;
        let address = listener.local_addr().map_err(|error| unavailable("the address", &error))?;
        let fixture = Arc::new(fixture);
        let gauges = Arc::new(Gauges::default());
        let (letters, inbox) = channel();
        let engine = start_engine(&fixture, &world, &options, &gauges, inbox)?;
        let app = Arc::new(app(fixture, world, &options, letters, gauges));
        Running::start(listener, address, router(&app), app, engine, options.on_signals)
    }
}

fn unavailable(what: &str, error: &std::io::Error) -> ServeError {
    ServeError::Unavailable(format!("{what}: {error}"))
}

fn bind(options: &Options) -> Result<TcpListener, ServeError> {
    let place = (options.host.as_str(), options.port);
    let bound = TcpListener::bind(place).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    bound.map_err(|error| unavailable(&format!("{}:{}", options.host, options.port), &error))
}

/// How the engine's thread ended.
type Outcome = Result<Held, ServeError>;

/// Starts the engine's thread, and waits until the engine is made.
fn start_engine<D>(
    fixture: &Arc<Fixture<D>>,
    world: &World,
    options: &Options,
    gauges: &Arc<Gauges>,
    inbox: Receiver<Letter>,
) -> Result<JoinHandle<Outcome>, ServeError>
where
    D: Device + Send + Sync + 'static,
    DeviceModel<D>: Send + Sync,
{
    let (fixture, world, gauges) = (Arc::clone(fixture), world.clone(), Arc::clone(gauges));
    let (seed, audits, running_max) = (options.seed, options.audits, options.limits.running_max);
    let (made, is_made) = channel();
    let work = move || {
        let outcome = guarded(|| {
            let live = match Live::new(fixture.model(), &world, seed, audits) {
                Ok(live) => live,
                Err(error) => {
                    let _ = made.send(Err(error));
                    return Ok(Held::default());
                }
            };
            let worker = Worker::new(live, Arc::clone(&gauges), running_max);
            let _ = made.send(Ok(()));
            worker.run(&inbox)
        });
        let outcome = match outcome {
            Ok(outcome) => outcome.map_err(ServeError::from),
            Err(why) => Err(ServeError::Panicked(why)),
        };
        if let Err(error) = &outcome {
            gauges.fail(error.to_string());
        }
        outcome
    };
    let thread = std::thread::Builder::new().name("lockstep-engine".into()).spawn(work);
    let thread = thread.map_err(|error| unavailable("a thread for the engine", &error))?;
    match is_made.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(thread.join().map_or_else(
            |_| ServeError::Panicked("panicked".into()),
            |outcome| outcome.err().unwrap_or(ServeError::Panicked("panicked".into())),
        )),
    }
}

fn app<D>(
    fixture: Arc<Fixture<D>>,
    world: World,
    options: &Options,
    letters: Sender<Letter>,
    gauges: Arc<Gauges>,
) -> App
where
    D: Device + Send + Sync + 'static,
    DeviceModel<D>: Send + Sync,
{
    let model = fixture.model();
    let room = world.pool_blocks as usize * world.block_size as usize;
    App {
        desk: Desk::new(letters, gauges, options.limits.waiting_max),
        name: options.name.clone().unwrap_or_else(|| world.model.clone()),
        positions_max: model.positions_max().min(room),
        created: seconds(),
        fingerprint: format!("lockstep-{}", &model.contract_hash()[..12]),
        limits: options.limits.clone(),
        salts: Mutex::default(),
        served: Box::new(OfFixture { fixture, world }),
    }
}

fn router(app: &Arc<App>) -> Router {
    Router::new()
        .route("/v1/completions", post(completions::handle))
        .route("/v1/chat/completions", post(chat::handle))
        .route("/v1/models", get(metrics::models))
        .route("/v1/models/{*name}", get(metrics::one_model))
        .route("/tokenize", post(tokenize::tokenize))
        .route("/detokenize", post(tokenize::detokenize))
        .route("/health", get(metrics::health))
        .route("/metrics", get(metrics::metrics))
        .fallback(nowhere)
        .method_not_allowed_fallback(|| async {
            error::ApiError::method_not_allowed().into_response()
        })
        .with_state(Arc::clone(app))
}

async fn nowhere(uri: axum::http::Uri) -> Response {
    error::ApiError::not_found(uri.path()).into_response()
}
