//! The certifier against servers with a fault each, and the same servers without it: every line of
//! the list of ways in which users of such tools fool themselves.

mod fixture;
mod server;
