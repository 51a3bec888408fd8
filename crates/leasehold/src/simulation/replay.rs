//! A simulation is worth something only if a failure can be looked at again.

use super::crowd::crowd;
use super::run::run;

#[test]
fn the_same_seed_makes_the_same_run_to_the_letter() {
    for seed in 1000..1002 {
        let (first, faults) = run(seed, crowd);
        assert_eq!(faults, Vec::<String>::new(), "seed {seed}");
        assert!(first.len() > 100, "something happened: {} lines", first.len());
        let (second, _) = run(seed, crowd);
        let differ = first.iter().zip(&second).position(|(a, b)| a != b);
        assert_eq!(differ, None, "seed {seed}: {:?}", differ.map(|at| (&first[at], &second[at])));
        assert_eq!(first.len(), second.len());
        assert_ne!(first, run(seed + 2, crowd).0, "another seed makes another run");
    }
}
