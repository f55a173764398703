//! A language model made of hashes: the logits of the next token depend on the context alone, so
//! a server without a fault gives the same bits whatever else it does.

/// Bytes are tokens 0 to 255.
pub(crate) const END: u32 = 256;
pub(crate) const BEGIN: u32 = 257;
const FIRST_PIECE: u32 = 258;
const PIECES: [&str; 56] = [
    " the", " of", " and", " to", " in", " a", " is", " that", " for", " it", " as", " was",
    " with", " be", " by", " on", " not", " he", " his", " but", " at", " are", " this", " have",
    " from", " or", " had", " an", " they", " which", " one", " you", " were", " all", " her",
    " she", " there", " would", " their", " we", " him", " been", " has", " when", " who", "ing",
    "ed", "er", "es", "ly", "tion", ", ", ". ", "th", "he", "in",
];
/// Each piece has a twin: another token of the same text, as merged special tokens have it.
const FIRST_TWIN: u32 = FIRST_PIECE + PIECES.len() as u32;
pub(crate) const VOCABULARY: u32 = FIRST_TWIN + PIECES.len() as u32;

/// A well-mixed 64-bit value (the finaliser of splitmix64).
pub(crate) fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// A value in 0 to 1 from a hash.
pub(crate) fn unit(hash: u64) -> f64 {
    (hash >> 11) as f64 / (1u64 << 53) as f64
}

/// A value around 0 with a deviation of about 1: the sum of four uniform ones.
fn normal(hash: u64) -> f32 {
    let sum: u64 = (0..4).map(|part| (hash >> (16 * part)) & 0xffff).sum();
    (sum as f32 / 65536.0 - 2.0) * 1.732
}

/// The context that a model has read, as a hash.
#[derive(Clone, Copy)]
pub(crate) struct Context(u64);

impl Context {
    pub(crate) fn new() -> Self {
        Self(0x010c_57e9)
    }

    /// A context of somebody else's: what a state fault makes of ours.
    pub(crate) fn foreign(self) -> Self {
        Self(mix(self.0 ^ 0xf0f0))
    }

    pub(crate) fn push(&mut self, token: u32) {
        self.0 = mix(self.0 ^ (u64::from(token) << 17) ^ 1);
    }

    pub(crate) fn of(tokens: &[u32]) -> Self {
        let mut context = Self::new();
        tokens.iter().for_each(|&token| context.push(token));
        context
    }

    pub(crate) fn hash(self) -> u64 {
        self.0
    }
}

/// Logits of the next token.
pub(crate) fn logits(context: Context) -> Vec<f32> {
    (0..VOCABULARY)
        .map(|token| {
            let bias = match token {
                0..128 => 0.0,
                128..256 => -1.0,
                END => -4.0,
                FIRST_PIECE..FIRST_TWIN => 2.5,
                _ => -30.0,
            };
            bias + 2.0 * normal(mix(context.0 ^ (u64::from(token) << 40)))
        })
        .collect()
}

/// Adds a small value to each logit; another `kind`, another set of values.
pub(crate) fn drift(logits: &mut [f32], context: Context, kind: u64, size: f32) {
    for (token, logit) in logits.iter_mut().enumerate() {
        *logit += size * normal(mix(context.0 ^ mix(kind) ^ ((token as u64) << 32)));
    }
}

/// Logarithms of the softmax, summed in f64 and rounded once.
pub(crate) fn logprobs(logits: &[f32], temperature: f64) -> Vec<f32> {
    let scaled: Vec<f64> = logits.iter().map(|&logit| f64::from(logit) / temperature).collect();
    let most = scaled.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = scaled.iter().map(|logit| (logit - most).exp()).sum();
    scaled.iter().map(|logit| (logit - most - sum.ln()) as f32).collect()
}

/// The best token: greedy, or with the noise of a seed for a temperature above 0.
pub(crate) fn choose(logits: &[f32], temperature: f64, seed: u64, at: usize) -> u32 {
    let score = |token: usize| -> f64 {
        let logit = f64::from(logits[token]);
        if temperature <= 0.0 {
            return logit;
        }
        let draw = unit(mix(mix(seed) ^ ((at as u64) << 32) ^ token as u64)).max(1e-12);
        logit / temperature - (-draw.ln()).ln()
    };
    (0..logits.len()).max_by(|&a, &b| score(a).total_cmp(&score(b))).expect("a vocabulary") as u32
}

/// The bytes of a token; the special ones have none.
pub(crate) fn bytes(token: u32) -> Vec<u8> {
    let piece = |piece: u32| PIECES[piece as usize].as_bytes().to_vec();
    match token {
        0..256 => vec![token as u8],
        FIRST_PIECE..FIRST_TWIN => piece(token - FIRST_PIECE),
        FIRST_TWIN..VOCABULARY => piece(token - FIRST_TWIN),
        _ => Vec::new(),
    }
}

/// The other token of the same text, where there is one.
pub(crate) fn twin(token: u32) -> Option<u32> {
    (FIRST_PIECE..FIRST_TWIN).contains(&token).then(|| token - FIRST_PIECE + FIRST_TWIN)
}

/// Tokens of a text: the longest piece at each place, else a byte. So a text made from tokens
/// need not give those tokens back.
pub(crate) fn tokenize(text: &str) -> Vec<u32> {
    let mut rest = text.as_bytes();
    let mut tokens = Vec::new();
    while let Some(&first) = rest.first() {
        let piece = (0..PIECES.len())
            .filter(|&piece| rest.starts_with(PIECES[piece].as_bytes()))
            .max_by_key(|&piece| PIECES[piece].len());
        let (token, length) = match piece {
            Some(piece) => (FIRST_PIECE + piece as u32, PIECES[piece].len()),
            None => (u32::from(first), 1),
        };
        tokens.push(token);
        rest = &rest[length..];
    }
    tokens
}

pub(crate) fn text(tokens: &[u32]) -> String {
    let bytes: Vec<u8> = tokens.iter().flat_map(|&token| bytes(token)).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
