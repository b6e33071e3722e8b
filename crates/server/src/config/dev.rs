//! The secrets of dev mode: created once per data folder and kept there, so that tokens and keys survive a restart.
//! Must hold: only the owner can read the files; two servers that start at once agree on one secret.

use super::{Config, SecretText, ServerMode, ValueSource};
use serde_json::json;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

const SECRET_FILE: &str = "dev-secret";
const KEY_FILE: &str = "dev-key";
const PUSHER_FILE: &str = "dev-pusher-secret";

/// Sets the secret and the admin key of the data folder where the configuration has none.
pub fn provide(config: &mut Config) -> io::Result<()> {
    assert_eq!(config.mode, ServerMode::Dev);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&config.data)?;
    if config.secret.is_none() {
        config.secret = Some(keep(&config.data, SECRET_FILE, || crate::random::random_text(52))?);
        let place = config.data.join(SECRET_FILE).display().to_string();
        config.note("secret", json!("(hidden)"), ValueSource::Derived(place));
    }
    if config.admin_key.is_none() {
        let fresh = || format!("tvk_dev_{}", crate::random::random_text(40));
        config.admin_key = Some(keep(&config.data, KEY_FILE, fresh)?);
        let place = config.data.join(KEY_FILE).display().to_string();
        config.note("admin_key", json!("(hidden)"), ValueSource::Derived(place));
    }
    for app in config
        .pusher_apps
        .iter_mut()
        .map(|table| &mut table.app)
        .filter(|app| app.secret.is_none() && app.secret_file.as_os_str().is_empty())
    {
        app.secret = Some(keep(&config.data, PUSHER_FILE, || crate::random::random_text(40))?);
    }
    Ok(())
}

/// The secret that a dev server left in this folder.
pub fn kept_secret(folder: &Path) -> Option<SecretText> {
    read(&folder.join(SECRET_FILE)).ok()
}

/// The admin key that a dev server left in this folder.
pub fn kept_key(folder: &Path) -> Option<SecretText> {
    read(&folder.join(KEY_FILE)).ok()
}

fn read(path: &Path) -> io::Result<SecretText> {
    let text = fs::read_to_string(path)?;
    let text = text.trim();
    if text.len() < 32 {
        let problem = format!("{} is damaged: remove it to get a new one", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    Ok(SecretText::new(text))
}

fn keep(folder: &Path, name: &str, fresh: impl FnOnce() -> String) -> io::Result<SecretText> {
    let path = folder.join(name);
    match read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        found => return found,
    }
    // Written to a temporary file and linked (atomic): another server sees the complete secret or none; the first one wins.
    let aside = folder.join(format!("{name}.{}", std::process::id()));
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&aside)?;
    writeln!(file, "{}", fresh())?;
    file.sync_all()?;
    let linked = fs::hard_link(&aside, &path);
    fs::remove_file(&aside)?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => read(&path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn secret_is_kept_and_readable_by_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        assert!(kept_secret(folder.path()).is_none());
        let first = keep(folder.path(), SECRET_FILE, || "a".repeat(40)).unwrap();
        let second = keep(folder.path(), SECRET_FILE, || "b".repeat(40)).unwrap();
        assert!(second.matches(first.expose()));
        assert!(kept_secret(folder.path()).unwrap().matches(first.expose()));
        let mode = fs::metadata(folder.path().join(SECRET_FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_damaged_secret_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(SECRET_FILE), "short").unwrap();
        assert!(keep(folder.path(), SECRET_FILE, || "a".repeat(40)).is_err());
    }
}
