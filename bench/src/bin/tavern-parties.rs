//! The program behind `make bench-parties`. Everything is in the library, where tests reach it.

use clap::Parser;

fn main() -> anyhow::Result<()> {
    tavern_bench::parties::main(tavern_bench::parties::Args::parse())
}
