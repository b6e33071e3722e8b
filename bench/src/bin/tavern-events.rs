//! The program behind `make bench-events`. Everything is in the library, where tests reach it.

use clap::Parser;

fn main() -> anyhow::Result<()> {
    tavern_bench::events::main(tavern_bench::events::Args::parse())
}
