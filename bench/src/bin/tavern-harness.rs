//! The program behind `make bench`. Everything is in the library, where tests reach it.

use clap::Parser;

fn main() -> anyhow::Result<()> {
    tavern_bench::harness::main(tavern_bench::harness::Args::parse())
}
