//! The program behind `make bench-cluster`. Everything is in the library, where tests reach it.

use clap::Parser;

fn main() -> anyhow::Result<()> {
    tavern_bench::cluster::main(tavern_bench::cluster::Args::parse())
}
