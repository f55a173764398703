//! One change in the text of an answer: a digit of a log-probability, or else a character of the text.

/// Changes one digit of the first log-probability in `piece`, or a character of its text if it has none. Returns whether
/// anything was changed.
pub(super) fn alter(piece: &mut [u8]) -> bool {
    for key in [&b"\"token_logprobs\""[..], b"\"logprob\""] {
        if let Some(at) = find(piece, key)
            && alter_digit(&mut piece[at + key.len()..])
        {
            return true;
        }
    }
    [&b"\"text\""[..], b"\"content\""]
        .into_iter()
        .any(|key| find(piece, key).is_some_and(|at| alter_character(&mut piece[at + key.len()..])))
}

fn find(text: &[u8], key: &[u8]) -> Option<usize> {
    text.windows(key.len()).position(|window| window == key)
}

/// The last digit before the exponent of the first number, which stands before anything but a list's start and nulls.
fn alter_digit(rest: &mut [u8]) -> bool {
    let mut start = None;
    for (i, &byte) in rest.iter().enumerate() {
        match byte {
            b'0'..=b'9' | b'-' => {
                start = Some(i);
                break;
            }
            b':' | b'[' | b' ' | b',' | b'\n' | b'n' | b'u' | b'l' => {}
            _ => break,
        }
    }
    let Some(start) = start else { return false };
    let is_mantissa = |byte: &&u8| byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    let length = rest[start..].iter().take_while(is_mantissa).count();
    let digits = &mut rest[start..start + length];
    let Some(last) = digits.iter_mut().rev().find(|byte| byte.is_ascii_digit()) else {
        return false;
    };
    *last = if *last == b'9' { b'8' } else { *last + 1 };
    true
}

/// The first letter of a string.
fn alter_character(rest: &mut [u8]) -> bool {
    let Some(quote) = rest.iter().position(|&byte| byte == b'"') else { return false };
    if !rest[..quote].iter().all(|byte| matches!(byte, b':' | b' ')) {
        return false;
    }
    let string = &mut rest[quote + 1..];
    let end = string.iter().position(|&byte| byte == b'"' || byte == b'\\').unwrap_or(string.len());
    let Some(letter) = string[..end].iter_mut().find(|byte| byte.is_ascii_alphanumeric()) else {
        return false;
    };
    *letter = if *letter == b'x' { b'y' } else { b'x' };
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn altered(text: &str) -> Option<String> {
        let mut bytes = text.as_bytes().to_vec();
        alter(&mut bytes).then(|| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn one_digit_of_the_first_value_changes() {
        let cases = [
            (r#"{"token_logprobs":[-0.25,-1]}"#, r#"{"token_logprobs":[-0.26,-1]}"#),
            (r#"{"token_logprobs": [null, -0.9e-7]}"#, r#"{"token_logprobs": [null, -0.8e-7]}"#),
            (r#"{"text":"a","logprob": -1.0}"#, r#"{"text":"a","logprob": -1.1}"#),
        ];
        for (before, after) in cases {
            assert_eq!(altered(before).as_deref(), Some(after));
        }
    }

    #[test]
    fn without_values_a_letter_changes_and_without_letters_nothing() {
        assert_eq!(altered(r#"{"text": " \n"}"#), None);
        assert_eq!(altered(r#"{"text": " ab"}"#).as_deref(), Some(r#"{"text": " xb"}"#));
        assert_eq!(
            altered(r#"{"logprob":null,"content":"x"}"#).as_deref(),
            Some(r#"{"logprob":null,"content":"y"}"#)
        );
        assert_eq!(altered(r#"{"content":null}"#), None);
    }
}
