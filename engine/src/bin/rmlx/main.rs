//! The `rmlx` command.

fn main() {}
