//! Parses, dispatches, and turns results into exit codes.

fn main() {}
