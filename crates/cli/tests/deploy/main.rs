//! deploy/ and docs/operations.md: the alert rules, the board, the files for systemd, containers and
//! the load balancer, checked with the programs that read them and against a server that runs.

mod alerting;
mod balancer;
mod files;
mod lies;
mod programs;
mod promql;
mod routine;
mod rules;
mod serve;
mod served;
#[path = "../support/mod.rs"]
mod support;
mod tally;
mod webhook;
