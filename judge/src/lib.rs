//! What simulation, chaos, the simulated driver, bench, model and tests share, so that none of them
//! has a copy of its own: chance from a seed.

mod chance;

pub use chance::Chance;
