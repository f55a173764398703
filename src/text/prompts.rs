//! A file of prompts: texts separated by lines of three dashes.

use super::{TEXT_BYTES_MAX, TextError};

/// Line between two prompts.
const SEPARATOR: &str = "---";
/// Most prompts in a file.
const PROMPTS_MAX: usize = 10_000;

/// The prompts of a file, without the blank lines around each.
pub fn parse(text: &str) -> Result<Vec<String>, TextError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(TextError::TooLong { bytes: text.len(), bytes_max: TEXT_BYTES_MAX });
    }
    let mut prompts = vec![String::new()];
    for line in text.trim_start_matches('\u{feff}').lines() {
        if line.trim_end() == SEPARATOR {
            prompts.push(String::new());
        } else if let Some(prompt) = prompts.last_mut() {
            prompt.push_str(line);
            prompt.push('\n');
        }
    }
    if prompts.len() > PROMPTS_MAX {
        let what = format!("more than {PROMPTS_MAX}");
        return Err(TextError::Prompts { prompt: prompts.len(), what });
    }
    let last = prompts.len();
    let mut trimmed = Vec::with_capacity(last);
    for (i, prompt) in prompts.iter().enumerate() {
        let lines = prompt.trim_end();
        let body = lines.trim_start_matches('\n');
        match body.is_empty() {
            false => trimmed.push(body.to_owned()),
            // A file may end with a separator.
            true if i + 1 == last && i > 0 => {}
            true => {
                return Err(TextError::Prompts { prompt: i + 1, what: "empty".to_owned() });
            }
        }
    }
    Ok(trimmed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_keep_inner_blank_lines_and_indentation() {
        let text = "\n  one\n\n  more\n\n---  \r\ntwo\r\nlines\r\n---\n";
        assert_eq!(parse(text).expect("well formed"), ["  one\n\n  more", "two\nlines"]);
    }

    #[test]
    fn an_empty_prompt_is_refused_with_its_number() {
        for (text, number) in [("", 1), ("a\n---\n \n---\nb", 2), ("---\na", 1)] {
            let error = parse(text).expect_err("an empty prompt").to_string();
            assert_eq!(error, format!("prompt {number}: empty"));
        }
    }

    #[test]
    fn dashes_inside_a_line_do_not_separate() {
        assert_eq!(parse("a --- b\n----\n").expect("well formed"), ["a --- b\n----"]);
    }

    #[test]
    fn too_many_prompts_are_refused() {
        let text = "x\n---\n".repeat(PROMPTS_MAX + 1);
        assert!(parse(&text).is_err());
    }
}
