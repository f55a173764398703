//! What the handlers know about the model.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::device::Device;
use crate::engine::{DeviceModel, check_requests};
use crate::fixture::Fixture;
use crate::text::Tokenizer;
use crate::workload::{Request, Workload};
use crate::world::World;

use super::engine_thread::Desk;
use super::error::ApiError;
use super::limits::{Limits, SALTS_MAX};
use super::openai::fields::Fields;
use super::openai::logprobs::Names;

/// A model of any device.
pub(super) trait Served: Send + Sync {
    /// The tokenizer, if its tokens have bytes of their own.
    fn tokenizer(&self) -> Option<&Tokenizer>;
    /// Id put before a text, if the model wants one.
    fn bos(&self) -> Option<u32>;
    /// Refuses what can never run; the error is one line.
    fn check(&self, request: &Request) -> Result<(), String>;
}

/// The model of a fixture, in the world that it is served in.
pub(super) struct OfFixture<D: Device> {
    pub(super) fixture: Arc<Fixture<D>>,
    pub(super) world: World,
}

impl<D> Served for OfFixture<D>
where
    D: Device + Send + Sync,
    DeviceModel<D>: Send + Sync,
{
    fn tokenizer(&self) -> Option<&Tokenizer> {
        self.fixture.model().tokenizer()
    }

    fn bos(&self) -> Option<u32> {
        self.fixture.model().config().bos
    }

    fn check(&self, request: &Request) -> Result<(), String> {
        let workload = Workload { requests: vec![request.clone()] };
        let checked = check_requests(self.fixture.model(), &self.world, &workload);
        checked.map_err(|error| error.to_string())
    }
}

/// Everything that the handlers share.
pub(super) struct App {
    pub(super) desk: Desk,
    pub(super) served: Box<dyn Served>,
    /// Name of the model, as clients know it.
    pub(super) name: String,
    /// Most positions of a request: prompt and output but its last token.
    pub(super) positions_max: usize,
    /// Seconds since 1970 at the start.
    pub(super) created: u64,
    /// Names the contract that fixes the arithmetic.
    pub(super) fingerprint: String,
    pub(super) limits: Limits,
    pub(super) salts: Mutex<Salts>,
}

impl App {
    /// What tokens are called.
    pub(super) fn names(&self, by_id: bool) -> Names<'_> {
        Names { tokenizer: self.served.tokenizer(), by_id }
    }

    /// Reads the name of the model; none is as good as the one that is served.
    pub(super) fn read_model(&self, fields: &mut Fields) -> Result<(), ApiError> {
        match fields.get::<String>("model")? {
            Some(name) if name != self.name => Err(ApiError::no_such_model(&name)),
            _ => Ok(()),
        }
    }

    /// Ids of a text, behind the one that the model wants there.
    pub(super) fn encode(&self, text: &str, special_tokens: bool) -> Result<Vec<u32>, ApiError> {
        let tokenizer = self.served.tokenizer().ok_or_else(|| {
            ApiError::bad("this model has no byte-level tokenizer: send token ids")
        })?;
        let mut ids: Vec<u32> = self.served.bos().into_iter().filter(|_| special_tokens).collect();
        ids.extend(tokenizer.encode(text).map_err(|error| ApiError::bad(error.to_string()))?);
        Ok(ids)
    }

    /// Text of ids.
    pub(super) fn decode(&self, ids: &[u32]) -> String {
        self.served.tokenizer().map(|t| t.decode(ids)).unwrap_or_default()
    }

    /// Number of the namespace of a `cache_salt`.
    pub(super) fn namespace(&self, salt: Option<&str>) -> u32 {
        let salts = || self.salts.lock().unwrap_or_else(PoisonError::into_inner);
        salt.map_or(0, |salt| salts().number(salt))
    }
}

/// Namespaces by salt. A number is never given twice, so no two salts ever share a block, also where one was
/// forgotten: then its blocks are not found again.
#[derive(Debug, Default)]
pub(super) struct Salts {
    numbers: BTreeMap<String, u32>,
    last: u32,
}

impl Salts {
    fn number(&mut self, salt: &str) -> u32 {
        if let Some(number) = self.numbers.get(salt) {
            return *number;
        }
        if self.numbers.len() == SALTS_MAX {
            self.numbers.clear();
        }
        self.last += 1;
        self.numbers.insert(salt.into(), self.last);
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn salts_have_numbers_of_their_own_and_few_are_remembered() {
        let mut salts = Salts::default();
        assert_eq!([salts.number("a"), salts.number("b"), salts.number("a")], [1, 2, 1]);
        for i in 0..2 * SALTS_MAX {
            assert!(salts.number(&i.to_string()) > 2);
        }
        assert!(salts.numbers.len() <= SALTS_MAX);
        assert!(salts.number("a") > 2);
    }
}
