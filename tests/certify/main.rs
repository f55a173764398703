//! The certifier against servers with a fault each, and the same servers without it: every line of
//! the list of ways in which users of such tools fool themselves.
//!
//! Trials do little but wait for servers that take their time, so that many run at once, whatever
//! the number of cores.

mod a4_load;
mod a4_observable;
mod a4_state;
mod a4_verdict;
mod arms;
mod asked;
mod balancers;
mod combined;
mod early;
mod endings;
mod fixture;
mod hostile;
mod lives;
mod out;
mod power;
mod records;
mod reproduce;
mod run;
mod server;
mod witnesses;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

const THREADS: usize = 10;

/// Trials by the names of their functions; one that is left out is dead code to the compiler.
macro_rules! trials {
    ($($module:ident :: $name:ident,)*) => {
        vec![$(trial(concat!(stringify!($module), "::", stringify!($name)), $module::$name)),*]
    };
}

/// Trials of what takes requests to meet at the right moment, which they may miss on a machine with much to do; and how often such
/// a one may begin again.
const TIMED: [&str; 6] = [
    "a4_load::a4_07_answers_from_a_gateway_are_not_scored",
    "endings::a_budget_that_ends_anywhere_holds_nothing",
    "endings::plans_of_odd_shapes_find_the_same",
    "out::a_crowd_is_shrunk_to_what_the_fault_needs",
    "out::a_fault_now_and_then_is_shrunk_as_far_as_it_shows",
    "witnesses::each_level_is_claimed_or_not_by_itself",
];
const AGAIN: usize = 5;

fn trial(name: &str, run: fn()) -> Trial {
    let again = if TIMED.contains(&name) { AGAIN } else { 0 };
    Trial::test(name, move || {
        timed(again, run);
        Ok(())
    })
}

/// Runs a trial, and again as often as it may begin again.
fn timed(again: usize, run: fn()) {
    let passes = (0..again).any(|_| std::panic::catch_unwind(run).is_ok());
    if !passes {
        run();
    }
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    let mut all = trials![
        a4_load::a4_01_a_sequential_server_is_not_scored,
        a4_load::a4_02_the_number_in_flight_is_measured_and_printed,
        a4_load::a4_03_a_cap_of_the_server_shows_in_the_levels,
        a4_load::a4_04_short_answers_are_no_load,
        a4_load::a4_05_prompts_differ_in_length_and_from_the_first_block_on,
        a4_load::a4_06_what_serialises_requests_is_seen,
        a4_load::a4_07_answers_from_a_gateway_are_not_scored,
        a4_load::traffic_that_was_sequential_is_never_clean,
        a4_state::a4_08_a_first_request_is_no_fault_of_crowds,
        a4_state::a4_09_priming_is_the_identical_traffic,
        a4_state::a4_10_cold_and_warm_are_apart_from_alone_and_concurrent,
        a4_state::a4_11_a_hit_must_be_proven,
        a4_state::a4_12_no_flush_is_relied_on,
        a4_state::a4_13_a_server_that_drifts_over_its_life_is_seen,
        a4_state::a4_14_strangers_are_seen_and_witness_nothing,
        a4_state::a4_15_settings_of_the_server_are_not_claimed,
        a4_observable::a4_16_the_resolution_is_stated,
        a4_observable::a4_17_only_alternatives_that_both_sides_have_are_compared,
        a4_observable::a4_18_raw_and_processed_logprobs_are_told_apart,
        a4_observable::a4_19_the_sampled_token_is_found_by_id,
        a4_observable::a4_20_the_text_of_a_token_is_not_the_token,
        a4_observable::a4_21_streams_are_joined_and_are_an_arm_of_their_own,
        a4_observable::a4_22_finish_reason_and_length_are_compared,
        a4_observable::a4_23_text_that_does_not_come_back_is_not_scored,
        a4_observable::a4_24_prompts_of_other_token_counts_are_not_compared,
        a4_observable::a4_25_no_default_of_the_server_decides,
        a4_observable::a4_26_a_seed_must_do_something,
        a4_verdict::a4_27_drift_is_told_from_a_state_fault,
        a4_verdict::a4_28_the_positive_control_must_be_seen,
        a4_verdict::a4_29_the_negative_control_must_be_clean,
        a4_verdict::a4_30_an_intermittent_fault_has_counts_and_an_interval,
        a4_verdict::a4_31_differences_are_grouped_by_prompt,
        a4_verdict::a4_32_the_scope_line_says_what_was_asked,
        a4_verdict::a4_33_no_cause_is_named,
        a4_verdict::a4_34_refusals_void_cases_and_budgets_hold,
        arms::a_fault_shows_in_its_own_arm,
        arms::the_order_of_arrival_shows_in_the_order_arm,
        early::a_first_answer_that_differs_is_broken_by_an_arm_of_its_own,
        early::a_prefill_among_neighbours_is_found,
        early::a_difference_past_a_length_is_found_and_no_length_is_claimed_that_was_not_asked,
        early::the_smallest_number_at_once_is_found,
        early::a_fault_of_one_life_is_found_in_it,
        early::faults_show_through_the_chat_route_too,
        witnesses::a_difference_needs_no_witness,
        witnesses::witnesses_that_contradict_each_other_decide_nothing,
        witnesses::warm_repeats_that_differ_leave_cold_crowds_judged,
        witnesses::what_a_crowd_leaves_in_the_cache_is_told_from_time,
        witnesses::each_level_is_claimed_or_not_by_itself,
        witnesses::a_level_without_values_is_not_claimed,
        witnesses::a_level_that_was_never_in_flight_is_not_claimed,
        witnesses::a_first_answer_from_the_cache_is_none,
        witnesses::the_headline_says_the_resolution,
        witnesses::a_cache_of_long_blocks_is_seen,
        balancers::replicas_that_stick_to_their_clients_are_one_server,
        balancers::a_balancer_that_spills_over_is_not_called_a_fault_of_batches,
        balancers::replicas_by_chance_or_in_turn_leave_nothing_to_compare_with,
        balancers::small_plans_do_not_blame_crowds_for_replicas,
        records::answers_that_were_cut_are_not_compared,
        records::values_that_say_nothing_hold_nothing,
        records::streams_with_gaps_are_not_compared,
        records::the_text_of_a_chat_is_compared_where_it_stands,
        records::a_stream_is_over_at_its_end_marker,
        records::refused_fields_are_left_out,
        records::what_disagrees_beside_the_tokens_is_told_beside_the_verdict,
        asked::prompts_have_the_lengths_that_were_asked_for,
        asked::own_prompts_are_judged,
        asked::headers_and_fields_go_with_every_request,
        asked::the_route_that_was_asked_for_is_asked,
        asked::metrics_may_be_at_another_address,
        asked::alternatives_are_asked_for,
        asked::an_address_may_have_a_query,
        endings::a_server_that_dies_is_never_held,
        endings::what_was_seen_before_the_end_counts,
        endings::a_budget_that_ends_anywhere_holds_nothing,
        endings::storms_of_refusals_decide_nothing_false,
        endings::plans_of_odd_shapes_find_the_same,
        combined::a_fault_is_found_whatever_the_server_is_like,
        combined::no_fault_is_none_whatever_the_server_is_like,
        combined::a_length_that_no_crowd_answered_is_not_claimed,
        combined::faults_do_not_hide_each_other,
        combined::a_prefill_in_company_is_found,
        fixture::without_a_fault_a_crowd_gets_the_answers_of_each_alone,
        fixture::a_fault_of_crowds_shows_in_crowds_alone,
        fixture::a_stream_gives_the_plain_answer,
        fixture::a_prompt_is_scored_as_it_was_generated,
        fixture::the_cache_of_prefixes_counts_blocks,
        fixture::gateways_give_stored_answers,
        fixture::odd_values_of_alternatives_go_over_the_wire,
        fixture::a_server_turns_hostile_when_it_is_told_to,
        fixture::a_fault_of_long_prompts_spares_short_ones,
        fixture::a_prefill_disturbs_those_that_decode,
        fixture::a_fault_may_live_in_one_life,
        fixture::answers_end_early_in_crowds,
        fixture::a_request_may_hold_many_prompts,
        fixture::many_prompts_may_be_refused_or_disturbed,
        fixture::a_prompt_shorter_than_a_block_is_not_cached,
        fixture::a_crowd_leaves_its_bits_in_the_cache,
        fixture::a_block_keeps_its_first_or_its_last_origin,
        fixture::warm_requests_may_have_bits_of_their_own,
        fixture::metrics_count_what_the_cache_had,
        fixture::a_gauge_may_show_what_waits_as_running,
        fixture::replicas_may_be_chosen_by_chance,
        fixture::replicas_may_stick_to_clients,
        fixture::replicas_may_spill_over,
        fixture::replicas_need_not_tell_themselves_apart,
        fixture::a_server_may_be_unavailable_under_load,
        fixture::a_server_may_be_killed,
        fixture::a_path_may_need_a_query,
        fixture::metrics_may_be_elsewhere,
        fixture::a_server_says_whose_model_it_is,
        fixture::a_stream_may_leave_records_out,
        fixture::a_stream_may_repeat_alternatives,
        fixture::a_stream_may_end_in_a_contradiction,
        fixture::a_stream_may_stay_open,
        fixture::values_may_all_be_zero,
        fixture::the_text_of_a_chat_stands_where_it_stands,
        fixture::fields_may_be_refused_one_by_one,
        fixture::a_chat_may_want_the_later_name_of_a_field,
        hostile::a_server_that_is_hostile_from_the_start_is_unusable,
        hostile::a_server_that_turns_hostile_in_the_middle_leaves_nothing_decided,
        hostile::an_address_without_a_server_is_unusable,
        hostile::the_key_is_sent_and_never_shown,
        lives::a_fault_of_one_life_in_three_is_counted,
        lives::a_life_whose_answers_are_others_is_seen_between_lives,
        lives::lives_that_are_alike_are_held,
        out::a_crowd_is_shrunk_to_what_the_fault_needs,
        out::what_the_fault_needs_is_not_cut,
        out::a_fault_now_and_then_is_shrunk_as_far_as_it_shows,
        out::what_was_not_shrunk_is_handed_out_as_it_is,
        out::samples_are_counted_by_prompt_and_by_batch,
        out::company_and_first_answers_have_files_of_their_own,
        out::a_report_is_read_in_a_terminal,
        out::the_page_marks_what_differs,
        out::the_page_says_what_the_report_says_and_holds_no_scripts,
    ];
    all.extend(reproduce::trials());
    // Takes minutes.
    let slow = trials![power::power_is_at_least_99_percent_without_false_alarms,];
    all.extend(slow.into_iter().map(|trial| trial.with_ignored_flag(true)));
    libtest_mimic::run(&arguments, all).exit_code()
}
