//! The real binary, as a real process, on SQLite files and on real Redis servers: every command
//! except `run` and `hold`, as text and as JSON, with every exit code.

mod bench;
mod doctor;
mod documented;
mod faults;
mod generated;
mod harness;
mod locks;
mod members;
mod plan;
mod screen;
mod scripts;
mod secrets;
mod settings;
