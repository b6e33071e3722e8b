//! The statements of the ring: batches in three tables that take turns. Must hold: a batch that was named by a
//! notification and is not there any more is noticed.

use super::super::connection::{PostgresConnection, Statement};
use super::super::error::PostgresError;
use super::super::value::get;

/// The table of a turn that has this many bytes ends it. Three of them are kept.
const TURN_BYTES: i64 = 32 * 1024 * 1024;
/// A turn ends at this age, so that the tables of a quiet bus become empty.
const TURN_MS: i64 = 20_000;
/// After this many bytes of its own, a node looks whether the turn should end.
const LOOK_BYTES: usize = 4 * 1024 * 1024;

const PUT: [&str; 3] = [
    "WITH stored AS (INSERT INTO bus_batches_0 (stream, batch, body) VALUES ($1, $2, $3))
        SELECT turn, pg_notify(channel, text) FROM bus_turn, unnest($4::text[], $5::text[]) AS notice (channel, text)",
    "WITH stored AS (INSERT INTO bus_batches_1 (stream, batch, body) VALUES ($1, $2, $3))
        SELECT turn, pg_notify(channel, text) FROM bus_turn, unnest($4::text[], $5::text[]) AS notice (channel, text)",
    "WITH stored AS (INSERT INTO bus_batches_2 (stream, batch, body) VALUES ($1, $2, $3))
        SELECT turn, pg_notify(channel, text) FROM bus_turn, unnest($4::text[], $5::text[]) AS notice (channel, text)",
];
const GET: [&str; 3] = [
    "SELECT batch, body FROM bus_batches_0 WHERE stream = $1 AND batch = ANY ($2)",
    "SELECT batch, body FROM bus_batches_1 WHERE stream = $1 AND batch = ANY ($2)",
    "SELECT batch, body FROM bus_batches_2 WHERE stream = $1 AND batch = ANY ($2)",
];

/// The ring as one connection writes it.
pub struct Ring {
    stream: u64,
    pub turn: u64,
    batches: u64,
    unlooked_bytes: usize,
    /// Some table may have rows.
    is_used: bool,
}

impl Ring {
    pub fn new(stream: u64) -> Ring {
        Ring { stream, turn: 0, batches: 0, unlooked_bytes: 0, is_used: true }
    }

    /// The number of the next batch.
    pub fn next_batch(&mut self) -> u64 {
        self.batches += 1;
        self.batches
    }

    /// Stores the batch that was numbered last, and notifies.
    pub async fn put(
        &mut self,
        connection: &PostgresConnection,
        body: Vec<u8>,
        notices: (Vec<String>, Vec<String>),
    ) -> Result<(), PostgresError> {
        self.note_used();
        self.unlooked_bytes += body.len();
        let (stream, batch) = (self.stream.cast_signed(), self.batches.cast_signed());
        let put = Statement::new(PUT[table(self.turn)]).with(stream).with(batch).with(body);
        let rows = connection.one(put.with(notices.0).with(notices.1)).await?;
        // A turn that another node has begun since.
        if let Some(row) = rows.first() {
            self.turn = get::<i64>(row, 0)?.cast_unsigned();
        }
        if self.unlooked_bytes >= LOOK_BYTES {
            self.look(connection).await?;
        }
        Ok(())
    }

    /// Somebody stored a batch.
    pub fn note_used(&mut self) {
        self.is_used = true;
    }

    /// An empty ring needs no look.
    pub fn is_used(&self) -> bool {
        self.is_used
    }

    /// Ends the turn if it is time; learns which turn it is, and whether all tables are empty.
    pub async fn look(&mut self, connection: &PostgresConnection) -> Result<(), PostgresError> {
        let rotate =
            Statement::new("SELECT turn, is_empty FROM bus_rotate($1, $2)").with(TURN_BYTES).with(TURN_MS);
        let rows = connection.one(rotate).await?;
        let row = rows.first().ok_or(PostgresError::Unexpected("bus_rotate returned nothing"))?;
        (self.turn, self.unlooked_bytes) = (get::<i64>(row, 0)?.cast_unsigned(), 0);
        self.is_used = !get::<bool>(row, 1)?;
        Ok(())
    }
}

/// Batches of one stream, in their order. Those that are not there any more are missing.
pub async fn get_all(
    connection: &PostgresConnection,
    stream: u64,
    turn: u64,
    batches: &[u64],
) -> Result<Vec<(u64, Vec<u8>)>, PostgresError> {
    let numbers: Vec<i64> = batches.iter().map(|batch| batch.cast_signed()).collect();
    let rows =
        connection.one(Statement::new(GET[table(turn)]).with(stream.cast_signed()).with(numbers)).await?;
    let found = rows.iter().map(|row| Ok((get::<i64>(row, 0)?.cast_unsigned(), get::<Vec<u8>>(row, 1)?)));
    let mut found = found.collect::<Result<Vec<_>, PostgresError>>()?;
    found.sort_unstable_by_key(|(batch, _)| *batch);
    Ok(found)
}

fn table(turn: u64) -> usize {
    (turn % 3) as usize
}
