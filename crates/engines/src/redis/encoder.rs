//! Arguments of a script, encoded one after the other.

use super::schema::RedisTable;
use std::io::Write;
use tavern_store::Writer;
use tavern_wire::resp;

#[derive(Default)]
pub(super) struct Encoder {
    pub out: Vec<u8>,
    pub count: usize,
    /// For numbers and joined names.
    scratch: Vec<u8>,
}

impl Encoder {
    pub fn argument(&mut self, argument: &[u8]) {
        resp::bulk(&mut self.out, argument);
        self.count += 1;
    }

    pub fn append(&mut self, other: &Encoder) {
        self.out.extend_from_slice(&other.out);
        self.count += other.count;
    }

    pub fn text(&mut self, text: &str) {
        self.argument(text.as_bytes());
    }

    pub fn number(&mut self, number: u64) {
        let mut digits = std::mem::take(&mut self.scratch);
        digits.clear();
        let _ = write!(digits, "{number}");
        self.argument(&digits);
        self.scratch = digits;
    }

    pub fn table(&mut self, table: RedisTable) {
        self.number(table as u64);
    }

    /// Names with a zero byte between them: no name has one.
    pub fn names(&mut self, names: &[&str]) {
        let mut joined = std::mem::take(&mut self.scratch);
        joined.clear();
        for (n, name) in names.iter().enumerate() {
            if n > 0 {
                joined.push(0);
            }
            joined.extend_from_slice(name.as_bytes());
        }
        self.argument(&joined);
        self.scratch = joined;
    }

    /// A table, and a field or member of it.
    pub fn place(&mut self, table: RedisTable, names: &[&str]) {
        self.table(table);
        self.names(names);
    }

    pub fn writer(&mut self, writer: &Writer) {
        self.names(&[&writer.node, &padded(writer.epoch.0)]);
    }
}

/// The lists that a row is in because of its content, as they are stored behind it.
#[derive(Default)]
pub(super) struct IndexEntries(pub Vec<u8>);

impl IndexEntries {
    pub fn with(mut self, table: RedisTable, names: &[&str]) -> IndexEntries {
        let length = names.iter().map(|name| name.len()).sum::<usize>() + names.len() - 1;
        let _ = write!(self.0, "{}:{length}:", table as u8);
        for (n, name) in names.iter().enumerate() {
            if n > 0 {
                self.0.push(0);
            }
            self.0.extend_from_slice(name.as_bytes());
        }
        self
    }
}

/// Zero-padded digits, whose text order is that of the numbers.
pub(super) fn padded(number: u64) -> String {
    format!("{number:020}")
}
