//! Builds the site at `/docs` from the Markdown files of this repository. Part of the build script; its tests are in
//! `tests/it/docs_pages.rs`. Must hold: a document that is added to `docs/` is served without a change here.

pub mod highlight;
pub mod markdown;
pub mod search;
pub mod site;
pub mod twins;
