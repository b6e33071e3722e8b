//! The program behind `make bench-presence`. Everything is in the library, where tests reach it.

use clap::Parser;

fn main() -> anyhow::Result<()> {
    tavern_bench::presence::main(tavern_bench::presence::Args::parse())
}
