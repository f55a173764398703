//! `lockstep serve` as its clients meet it, over sockets.
//!
//! `cargo test --release --test serve -- --ignored soak_10000` sends the 10,000 requests. The test with OpenAI's own
//! client runs where Python has it (`cargo xtask openai` fetches it into `target/`), and is listed as ignored elsewhere; so is
//! that of the certifier's file for pytest (`cargo xtask pytest`).

mod chat;
mod client;
mod completions;
mod limits;
mod python;
mod reproduce;
mod soak;
mod stopping;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use lockstep::contract::Mode;
use lockstep::device::host::Host;
use lockstep::fixture::Fixture;
use lockstep::record::Held;
use lockstep::serve::{Options, Running, Server};
use lockstep::weights;

/// `tiny` on the host.
fn fixture(mode: Mode) -> Fixture<Host> {
    let model = weights::source("tiny", None).expect("a preset");
    Fixture::host("tiny", model, mode).expect("the host")
}

fn start(options: Options) -> Running {
    Server::start(fixture(Mode::Invariant), options).expect("a server")
}

/// Stops a server, which must hold nothing then.
fn stop(running: Running) {
    let ended = running.shutdown().expect("it was told to");
    assert_eq!(ended.held, Held::default());
    assert!(ended.panics.is_empty(), "{:?}", ended.panics);
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let tests: &[(&str, fn())] = &[
        ("completions::are_those_of_the_canonical_execution", completions::canonical),
        ("completions::prompts_are_texts_ids_and_lists_of_them", completions::prompts),
        ("completions::a_stream_is_the_plain_answer_in_pieces", completions::streams),
        ("completions::stop_strings_are_no_part_of_any_piece", completions::stops),
        ("completions::echo_scores_the_prompt", completions::echo),
        ("completions::a_prefix_is_served_once_and_only_to_its_salt", completions::cached),
        ("completions::samples_and_seeds_are_draws_of_their_own", completions::samples),
        ("completions::the_batch_dependent_mode_shows_under_load", completions::control),
        ("chat::is_the_completion_of_its_template", chat::completion),
        ("chat::a_stream_is_the_plain_answer_in_pieces", chat::streams),
        ("chat::models_and_tokens", chat::models_and_tokens),
        ("limits::what_is_wrong_is_named", limits::wrong),
        ("limits::what_is_not_supported_is_refused", limits::unsupported),
        ("limits::bodies_are_bounded_in_size_and_time", limits::bodies),
        ("limits::heads_are_bounded_in_time", limits::heads),
        ("limits::rows_of_a_step_change_no_answer", limits::rows),
        ("limits::a_full_queue_answers_429", limits::queue),
        ("limits::a_request_is_bounded_in_time", limits::time),
        ("limits::a_client_that_takes_nothing_is_left", limits::writes),
        ("limits::a_client_that_leaves_frees_what_it_held", limits::leaving),
        ("limits::metrics_count_what_was_done", limits::metrics),
        ("stopping::open_requests_are_finished", stopping::graceful),
        ("stopping::what_takes_too_long_is_ended_with_an_error", stopping::ungraceful),
        ("stopping::the_program_stops_on_a_signal", stopping::signal),
        ("soak::few_requests_of_every_kind", soak::few),
    ];
    let run = |test: fn()| {
        move || {
            test();
            Ok(())
        }
    };
    let mut trials: Vec<Trial> =
        tests.iter().map(|(name, test)| Trial::test(*name, run(*test))).collect();
    trials.push(Trial::test("soak::soak_10000", run(soak::many)).with_ignored_flag(true));
    trials.push(python::trial(arguments.list));
    trials.extend(reproduce::trials(arguments.list));
    libtest_mimic::run(&arguments, trials).exit_code()
}
