//! What is compiled for whom, by the lock file.

use std::collections::{BTreeMap, BTreeSet};

const LOCK: &str = include_str!("../Cargo.lock");

/// Every package that `name` needs, by way of others too.
fn needed_by(name: &str) -> BTreeSet<&'static str> {
    let mut packages: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in LOCK.split("[[package]]\n").skip(1) {
        let name = package.split('"').nth(1).unwrap_or_default();
        let list = package.split_once("dependencies = [").map_or("", |(_, list)| list);
        // A version follows the name where the lock file holds several.
        let needed = list.lines().filter_map(|line| line.trim().strip_prefix('"')?.split([' ', '"']).next());
        packages.entry(name).or_default().extend(needed);
    }
    let (mut needed, mut open) = (BTreeSet::new(), vec![name]);
    while let Some(package) = open.pop() {
        for other in packages.get(package).into_iter().flatten() {
            if needed.insert(*other) {
                open.push(other);
            }
        }
    }
    needed
}

/// Cells, commands and `cargo xtask` compile none of libtorch's C++, which takes minutes.
#[test]
fn only_the_measuring_program_compiles_libtorch() {
    for (package, expected) in [("iteragpu-lab", false), ("xtask", false), ("iteragpu-worker", true)] {
        let needed = needed_by(package);
        assert!(needed.contains("serde"), "{package}: {needed:?}");
        for binding in ["tch", "torch-sys"] {
            assert_eq!(needed.contains(binding), expected, "{package} {binding}");
        }
    }
}
