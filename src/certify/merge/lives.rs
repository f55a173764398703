//! Life after life of one server: judged, restarted by whoever can, and judged again with the same prompts.
//!
//! Seed and nonce are the same in each life, so that answers can be compared. A new life has seen none of the prompts; a cache that
//! outlives a restart shows in the first answers of the next life.

use std::time::Duration;

use super::super::certificate::Certificate;
use super::super::error::CertifyError;
use super::super::gauge;
use super::super::options::{Options, Progress, Target};
use super::super::run::run;
use super::super::session::new_nonce;
use super::super::wire::client::Place;
use super::super::wire::{Address, Client, WireError};
use super::{Between, Merged, Part, merge_as};

/// Most lives.
pub const LIVES_MAX: u32 = 100;
/// Restarts that may fail one after the other; then no more are tried.
const FAILURES_MAX: u32 = 2;
/// Longest wait for a list of models.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Told of each life as it comes, by number: its certificate, or why there is none. Gives the file that it is kept in, if any.
pub type Judged<'a> = dyn FnMut(u32, Result<&Certificate, &str>) -> Option<String> + 'a;

/// Judges `count` lives of a server.
///
/// `restart` ends one life, waits for the next, and says where that is; it is given the number of the next life. `judged` is told
/// of each life as it comes, and gives the name of the file in which it keeps the certificate, if it does. A first life that cannot
/// be judged is an error; a later one is undecided.
pub fn lives(
    target: &Target,
    options: &Options,
    count: u32,
    progress: &dyn Progress,
    restart: &mut dyn FnMut(u32) -> Result<Target, String>,
    judged: &mut Judged<'_>,
) -> Result<Merged, CertifyError> {
    if !(2..=LIVES_MAX).contains(&count) {
        let why = format!("lives {count}: expected 2 to {LIVES_MAX}");
        return Err(CertifyError::BadInput(why));
    }
    let nonce = Some(options.nonce.unwrap_or_else(new_nonce));
    let options = Options { nonce, ..options.clone() };
    let url = Address::parse(&target.url)?.shown();
    let mut keep = |life: u32, outcome: Result<Certificate, String>| {
        let file = judged(life, outcome.as_ref().map_err(String::as_str));
        match outcome {
            Ok(certificate) => Part::of(&certificate, file),
            Err(why) => Part::failed(url.clone(), why),
        }
    };
    let mut parts = vec![keep(1, Ok(run(target, &options, progress)?))];
    let (mut failures, mut at) = (0, target.clone());
    for life in 2..=count {
        if failures >= FAILURES_MAX {
            let why = format!("not begun: the {failures} restarts before it failed");
            parts.push(keep(life, Err(why)));
            continue;
        }
        progress.stage("restart");
        let before = started(&at);
        let next = restart(life).and_then(|next| match (before, started(&next)) {
            (Some(before), Some(now)) if before == now => {
                Err(format!("the server was not restarted: its process began at {now}, as before"))
            }
            _ => Ok(next),
        });
        if let Ok(next) = &next {
            at = next.clone();
        }
        failures = if next.is_err() { failures + 1 } else { 0 };
        let outcome = next
            .and_then(|target| run(&target, &options, progress).map_err(|error| error.to_string()));
        parts.push(keep(life, outcome));
    }
    merge_as(Between::Lives, parts)
}

/// When the server's process began, where its metrics say so.
fn started(target: &Target) -> Option<String> {
    gauge::started(&Client::new(target, ANSWER_MAX).ok()?)
}

/// Whether a server answers a look at its models. One that says that it has too much to do, or an error of its own, is not ready
/// yet; one that has no such list is.
pub fn is_up(target: &Target) -> Result<bool, CertifyError> {
    let client = Client::new(target, ANSWER_MAX)?;
    Ok(match client.get(Place::Base, "models") {
        Ok(_) => true,
        Err(WireError::Status { code, .. }) => code < 500,
        Err(_) => false,
    })
}
