//! The statements that every kind of row has.

/// For one kind of row, each with two arrays of keys; the second is unused where one name is enough.
pub(super) struct RowStatements {
    /// Locks the rows; an absent row is reserved with version 0.
    pub lock: &'static str,
    /// The rows that exist: the number of the key from 1, the version, and what else the engine needs.
    pub load: &'static str,
    pub delete: &'static str,
}
