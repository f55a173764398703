//! The certifier against servers with a fault each, and the same servers without it: every line of
//! the list of ways in which users of such tools fool themselves.

mod a4_load;
mod a4_observable;
mod a4_state;
mod a4_verdict;
mod arms;
mod fixture;
mod hostile;
mod out;
mod power;
mod run;
mod server;
