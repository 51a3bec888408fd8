//! The binary `leasehold`.

fn main() {}
