//! Steps in the lifetime of a node: open, renew, close, stop, forget. Must hold: a closed epoch stays closed.

use super::change::{CloseProof, NodeChange, Receipt};
use super::tables::Tables;
use super::version::VersionClock;
use crate::error::StoreError;
use crate::node::{NodeRow, Writer};
use tavern_domain::Epoch;

pub(super) fn change(
    tables: &mut impl Tables,
    clock: &mut VersionClock,
    change: &NodeChange,
    receipt: &mut Receipt,
) -> Result<(), StoreError> {
    let now = receipt.time;
    match change {
        NodeChange::Open { name, lease_ms } => {
            let epochs = tables.epochs(name)?;
            for mut earlier in epochs.iter().filter(|node| node.closed_at.is_none()).cloned() {
                earlier.closed_at = Some(now);
                tables.put_node(&earlier)?;
            }
            let last = epochs.last().map_or(0, |node| node.writer.epoch.0);
            let epoch = Epoch(clock.begin(last));
            tables.put_node(&NodeRow {
                writer: Writer { node: name.clone(), epoch },
                opened_at: now,
                lease_until: now + *lease_ms,
                closed_at: None,
                clean: false,
            })?;
            receipt.epoch = Some(epoch);
        }
        NodeChange::Renew { node, lease_ms } => {
            let mut node = open(tables, node)?;
            // An ended lease can be renewed until another node closes the epoch: nothing was announced before that.
            node.lease_until = node.lease_until.max(now + *lease_ms);
            tables.put_node(&node)?;
        }
        NodeChange::Close { node: writer, proof } => {
            let unknown = || StoreError::UnknownNode { node: writer.clone() };
            let mut node = tables.node(writer)?.ok_or_else(unknown)?;
            if node.closed_at.is_none() {
                if *proof == CloseProof::LeaseEnded && now < node.lease_until {
                    return Err(StoreError::Leased { node: writer.clone(), until: node.lease_until });
                }
                node.closed_at = Some(now);
                tables.put_node(&node)?;
            }
            receipt.closed_at = node.closed_at;
        }
        NodeChange::Stop { node } => {
            let mut node = open(tables, node)?;
            (node.closed_at, node.clean) = (Some(now), true);
            tables.put_node(&node)?;
            receipt.closed_at = node.closed_at;
        }
        NodeChange::Forget { node: writer } => {
            if let Some(node) = tables.node(writer)? {
                if node.closed_at.is_none() {
                    return Err(StoreError::Leased { node: writer.clone(), until: node.lease_until });
                }
                tables.forget_node(writer)?;
                clock.retire(writer.epoch.0);
            }
        }
    }
    Ok(())
}

/// Fencing: an epoch that is closed or deleted writes nothing more.
pub(super) fn open(tables: &mut impl Tables, writer: &Writer) -> Result<NodeRow, StoreError> {
    match tables.node(writer)? {
        Some(node) if node.closed_at.is_none() => Ok(node),
        _ => Err(StoreError::Fenced { node: writer.node.clone(), epoch: writer.epoch }),
    }
}
