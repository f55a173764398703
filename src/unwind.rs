//! Panics of code that is not ours to trust, turned into errors without printing.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    /// While a guarded call runs on this thread: where and why it panicked, once it has.
    static GUARDED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Calls `f`. A panic in it becomes its message and place, in one line, and prints nothing.
///
/// What `f` left half-done must not be looked at again after an error.
pub fn guarded<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    quieten();
    let outer = GUARDED.replace(Some(String::new()));
    let outcome = catch_unwind(AssertUnwindSafe(f));
    let message = GUARDED.replace(outer).unwrap_or_default();
    outcome.map_err(|_| message)
}

/// Installs, once, a hook that keeps the message of a guarded panic and passes all others on.
fn quieten() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let kept = GUARDED.with_borrow_mut(|slot| match slot {
                Some(message) => {
                    *message = info.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
                    true
                }
                None => false,
            });
            if !kept {
                before(info);
            }
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guarded_panic_is_an_error_with_its_place() {
        assert_eq!(guarded(|| 3), Ok(3));
        let error = guarded(|| -> u32 { panic!("no {}", "way") }).unwrap_err();
        assert!(error.contains("unwind.rs") && error.contains("no way"), "{error}");
        // A guard inside a guard hands back to the outer one.
        let nested = guarded(|| {
            let inner = guarded(|| -> u32 { panic!("inner") });
            assert!(inner.is_err());
            panic!("outer");
        });
        assert!(nested.unwrap_err().contains("outer"));
    }
}
