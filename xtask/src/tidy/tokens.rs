//! A Rust file as a flat list of tokens, macro bodies and attributes included, comments left out.

use proc_macro2::{TokenStream, TokenTree};

/// One token and the line it starts on. Delimiters are tokens of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) text: String,
    pub(super) line: usize,
}

/// The text is not Rust.
#[derive(Debug)]
pub(super) struct NotRust {
    pub(super) line: usize,
    pub(super) message: String,
}

/// The tokens of a file, in order.
pub(super) fn flatten(text: &str) -> Result<Vec<Token>, NotRust> {
    let stream: TokenStream = text.parse().map_err(|error: proc_macro2::LexError| NotRust {
        line: error.span().start().line,
        message: format!("not Rust: {error}"),
    })?;
    let mut tokens = Vec::new();
    push_all(stream, &mut tokens);
    Ok(tokens)
}

/// Appends the tokens of `stream`.
pub(super) fn push_all(stream: TokenStream, tokens: &mut Vec<Token>) {
    for tree in stream {
        let line = tree.span().start().line;
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    proc_macro2::Delimiter::Parenthesis => ("(", ")"),
                    proc_macro2::Delimiter::Brace => ("{", "}"),
                    proc_macro2::Delimiter::Bracket => ("[", "]"),
                    proc_macro2::Delimiter::None => ("", ""),
                };
                tokens.push(Token { text: open.to_owned(), line });
                let close_line = group.span_close().start().line;
                push_all(group.stream(), tokens);
                tokens.push(Token { text: close.to_owned(), line: close_line });
            }
            other => tokens.push(Token { text: other.to_string(), line }),
        }
    }
}

/// Whether the tokens from `at` on read `pattern`, one text a token.
pub(super) fn reads(tokens: &[Token], at: usize, pattern: &[&str]) -> bool {
    tokens.len() >= at + pattern.len()
        && pattern.iter().zip(&tokens[at..]).all(|(text, token)| *text == token.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn macro_bodies_are_flattened_and_comments_are_not_there() {
        let tokens = flatten("// a::b\nfn f() {\n    vec![\n        c::d,\n    ];\n}\n").unwrap();
        let at = tokens.iter().position(|t| t.text == "c").unwrap();
        assert!(reads(&tokens, at, &["c", ":", ":", "d", ","]));
        assert_eq!(tokens[at].line, 4);
        assert!(!tokens.iter().any(|t| t.text == "a"));
    }

    #[test]
    fn text_that_is_not_rust_is_reported_with_its_line() {
        assert!(flatten("fn f() {\n").is_err());
    }
}
