//! The certificate as one page: no scripts, nothing loaded from elsewhere, and every value escaped. What a server sent is text
//! there, whatever it holds.

use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, context};

use super::certificate::{Arm, Certificate};
use super::repro::{PYTHON_FILE, SHELL_FILE, reproducer};
use super::text;

/// The page of a certificate.
pub fn page(certificate: &Certificate) -> String {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.add_filter("percent", |share: f64| format!("{:.2} %", share * 100.0));
    environment.add_filter("small", |value: f64| format!("{value:.3e}"));
    environment.add_filter("interval", interval);
    environment.add_filter("words", |name: &str| name.replace('_', " "));
    environment.add_filter("statement", statement);
    environment.add_filter("clean", text::clean);
    let (shell, python, no_reproducer) = match reproducer(certificate) {
        Ok(files) => (Some(files.shell), Some(files.python), None),
        Err(why) => (None, None, Some(why)),
    };
    let shrunk: Vec<Option<String>> =
        certificate.divergences.iter().map(|d| d.shrunk.as_ref().map(|s| s.words())).collect();
    let context = context! {
        certificate => Serde(certificate),
        summary => text::summary(certificate),
        samples => certificate.samples.lines(),
        shrunk,
        shell,
        python,
        no_reproducer,
        shell_file => SHELL_FILE,
        python_file => PYTHON_FILE,
    };
    // A template of our own and a context of known fields: the tests render every part of it.
    environment.render_str(include_str!("page.html"), context).expect("the page renders")
}

fn interval(low: f64, high: f64) -> String {
    format!("[{low:.4}, {high:.4}]")
}

/// What an arm compares, in words.
fn statement(name: &str) -> &'static str {
    Arm::ALL.into_iter().find(|arm| arm.name() == name).map_or("", Arm::statement)
}
