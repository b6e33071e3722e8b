//! What an operator should know about a data folder: whether its database can be read. For `tavern doctor`.

use super::value::fault;
use crate::fact::{CheckResult, StoreFacts};
use rusqlite::{Connection, OpenFlags};
use std::path::Path;
use tavern_store::StoreError;

/// Problems that are shown: the first ones name what is damaged.
const PROBLEMS: u32 = 5;

/// Reads every page of the database. Nothing is changed, and nothing is created.
pub(crate) fn facts(folder: &Path) -> Result<StoreFacts, StoreError> {
    let database = folder.join("tavern.db");
    if !database.exists() {
        return Ok(StoreFacts { facts: Vec::new(), is_made: true });
    }
    let problems = match problems(&database) {
        Ok(found) if found == ["ok"] => Vec::new(),
        Ok(found) => found,
        Err(StoreError::Damaged { source, .. }) => vec![source.to_string()],
        Err(error) => return Err(error),
    };
    let fact = match problems.is_empty() {
        true => CheckResult::ok("database", "tavern.db can be read as a whole"),
        false => {
            let text = format!("tavern.db is damaged: {}; restore it from a backup", problems.join("; "));
            CheckResult::bad("database", text)
        }
    };
    Ok(StoreFacts { facts: vec![fact], is_made: problems.is_empty() })
}

fn problems(database: &Path) -> Result<Vec<String>, StoreError> {
    // Not read-only: the first reader of a folder makes the file that the log of changes is read with.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(database, flags).map_err(fault)?;
    connection.pragma_update(None, "query_only", true).map_err(fault)?;
    let sql = format!("PRAGMA quick_check({PROBLEMS})");
    let mut statement = connection.prepare(&sql).map_err(fault)?;
    let found = statement.query_map([], |row| row.get::<_, String>(0)).map_err(fault)?;
    found.collect::<Result<_, _>>().map_err(fault)
}
