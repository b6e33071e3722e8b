//! Paths and permissions: every path to a folder is the same bus, and a folder that cannot be used is refused and not
//! changed.

use crate::support::mounts::is_root;
use crate::support::{Peer, drain, names, rows, word_of};
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use tavern_local::{Error, open};

/// A peer that opened `folder` by some path, and this process that opens it by its plain path, exchange messages.
fn check_same(there: &mut Peer, folder: &Path) {
    let here = open(folder).unwrap();
    there.ok("subscribe c");
    assert_eq!(here.publish("c", "there").unwrap(), 1);
    assert_eq!(there.ask("wait 5000"), "message c there");
    here.subscribe(["d"]).unwrap();
    assert_eq!(there.count("publish d back"), 1);
    assert_eq!(drain(&here), ["message d back"]);
    assert_eq!(rows(folder).processes.len(), 2);
}

#[test]
fn a_relative_path_stays_the_same_folder_when_the_directory_changes() {
    let place = tempfile::tempdir().unwrap();
    let mut there = Peer::idle();
    there.ok(&format!("chdir {}", word_of(place.path())));
    there.ok("open a%20folder/of%20mine");
    there.ok("chdir /");
    check_same(&mut there, &place.path().join("a folder/of mine"));
}

#[test]
fn folder_names_may_be_any_bytes() {
    let place = tempfile::tempdir().unwrap();
    for name in ["with space", "тавÉрна 🍺", "quote'\"&?#%", "-flag", "file:x?mode=ro", "new\nline"]
    {
        let folder = place.path().join(name);
        check_same(&mut Peer::at(&folder), &folder);
    }
    use std::os::unix::ffi::OsStrExt;
    let folder = place.path().join(std::ffi::OsStr::from_bytes(b"no\xff text"));
    check_same(&mut Peer::at(&folder), &folder);
}

#[test]
fn a_symlink_leads_to_the_same_bus() {
    let place = tempfile::tempdir().unwrap();
    let (folder, link, again) =
        (place.path().join("folder"), place.path().join("link"), place.path().join("again"));
    std::fs::create_dir(&folder).unwrap();
    symlink(&folder, &link).unwrap();
    symlink("link", &again).unwrap();
    check_same(&mut Peer::at(&folder), &link);
    let mut there = Peer::at(&again);
    // Changing the link later does not affect handles opened through it.
    std::fs::remove_file(&link).unwrap();
    symlink(place.path(), &link).unwrap();
    check_same(&mut there, &folder);
}

#[test]
fn a_path_longer_than_a_socket_address_works() {
    let place = tempfile::tempdir().unwrap();
    for bytes in [109, 300, 497] {
        let folder = deep(place.path(), bytes);
        check_same(&mut Peer::at(&folder), &folder);
    }
}

/// A path with this many bytes.
fn deep(place: &Path, bytes: usize) -> PathBuf {
    let mut folder = place.canonicalize().unwrap();
    while bytes - folder.as_os_str().len() > 200 {
        folder.push("d".repeat(100));
    }
    let rest = bytes - folder.as_os_str().len() - 1;
    folder.join("e".repeat(rest))
}

#[test]
fn a_path_too_long_for_the_database_is_refused_with_its_reason() {
    let place = tempfile::tempdir().unwrap();
    for bytes in [498, 600] {
        let folder = deep(place.path(), bytes);
        let refused = open(&folder).map(drop).unwrap_err();
        assert!(matches!(refused, Error::Folder { .. }), "{refused:?}");
        assert!(refused.to_string().contains("too long"), "{refused}");
        assert!(names(place.path()).is_empty(), "nothing is left behind");
    }
}

#[test]
fn two_paths_to_one_folder_share_one_registration() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("folder");
    let one = open(&folder).unwrap();
    symlink(&folder, place.path().join("link")).unwrap();
    let two = open(place.path().join("folder/../link/.")).unwrap();
    one.subscribe(["c"]).unwrap();
    two.subscribe(["c"]).unwrap();
    assert_eq!(rows(&folder).processes.len(), 1);
    assert_eq!(two.publish("c", "x").unwrap(), 2);
    assert_eq!((drain(&one), drain(&two)), (vec!["message c x".into()], vec!["message c x".into()]));
    // The last handle cleans up, whichever path it was opened by.
    one.close().unwrap();
    assert_eq!(two.publish("c", "y").unwrap(), 1);
    two.close().unwrap();
    assert_eq!(names(&folder), ["bus.db", "bus.db-lock"].map(String::from).into());
}

#[test]
fn several_folders_in_one_process_are_several_buses() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (one, two) = (open(a.path()).unwrap(), open(b.path()).unwrap());
    one.subscribe(["c"]).unwrap();
    assert_eq!(two.publish("c", "x").unwrap(), 0);
    two.subscribe(["c"]).unwrap();
    one.close().unwrap();
    assert_eq!(Peer::at(b.path()).count("publish c y"), 1);
    assert_eq!(drain(&two), ["message c y"]);
}

#[test]
fn a_file_in_place_of_the_folder_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("file");
    std::fs::write(&path, "mine").unwrap();
    let refused = open(&path).map(drop).unwrap_err();
    assert!(matches!(refused, Error::Folder { .. }), "{refused:?}");
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");
}

#[test]
fn a_file_that_is_not_a_database_is_named_in_the_error_and_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bus.db");
    std::fs::write(&path, "this was never a database, but it is long enough to be one".repeat(100)).unwrap();
    let refused = open(folder.path()).map(drop).unwrap_err();
    assert!(matches!(refused, Error::Corrupt { .. }), "{refused:?}");
    assert!(refused.to_string().contains(path.canonicalize().unwrap().to_str().unwrap()), "{refused}");
    assert!(std::fs::read(&path).unwrap().starts_with(b"this was never"));
}

#[test]
fn a_newer_database_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    open(folder.path()).unwrap().close().unwrap();
    crate::support::database(folder.path()).pragma_update(None, "user_version", 99).unwrap();
    let refused = open(folder.path()).map(drop).unwrap_err();
    assert!(matches!(refused, Error::NewerVersion { found: 99, .. }), "{refused:?}");
}

#[test]
fn folder_and_files_are_accessible_to_their_owner_only() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("new");
    let local = open(&folder).unwrap();
    local.subscribe(["c"]).unwrap();
    local.publish("c", "secret").unwrap();
    let rights = |path: &Path| std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(rights(&folder), 0o700);
    for name in names(&folder).iter().filter(|name| !name.contains("wake")) {
        assert_eq!(rights(&folder.join(name)), 0o600, "{name}");
    }
}

/// A peer that cannot write to the folders. Permissions do not apply to root, so for root it is a read-only mount.
fn without_rights(place: &Path, folders: &[PathBuf]) -> Peer {
    if is_root() {
        return Peer::behind("mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\"", place);
    }
    set_rights(folders, 0o500);
    Peer::idle()
}

fn set_rights(folders: &[PathBuf], rights: u32) {
    for folder in folders {
        std::fs::set_permissions(folder, Permissions::from_mode(rights)).unwrap();
    }
}

/// Opening fails with one error, and nothing has changed afterwards.
fn check_read_only(peer: &mut Peer, folder: &Path, seen: &Path) {
    let before = peer.ask(&format!("list {}", word_of(seen)));
    let refused = peer.ask(&format!("open {}", word_of(folder)));
    assert!(refused.starts_with("error ReadOnly "), "{refused}");
    assert!(
        refused.contains(folder.to_str().unwrap()) && refused.contains("cannot be written to"),
        "{refused}"
    );
    assert_eq!(peer.ask(&format!("list {}", word_of(seen))), before);
    // It can still use other folders.
    let elsewhere = tempfile::tempdir().unwrap();
    peer.ok(&format!("open {}", word_of(elsewhere.path())));
    peer.ok("close");
}

#[test]
fn a_read_only_folder_gives_one_clear_error_and_is_not_changed() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path().canonicalize().unwrap();
    std::fs::create_dir(place.join("empty")).unwrap();
    let folders = [place.join("empty"), place.clone()];
    let mut peer = without_rights(&place, &folders);
    check_read_only(&mut peer, &place.join("empty"), &place.join("empty"));
    check_read_only(&mut peer, &place.join("not there"), &place);
    set_rights(&folders, 0o700);
}

#[test]
fn a_bus_that_became_read_only_gives_the_same_error() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path().canonicalize().unwrap();
    let used = open(&place).unwrap();
    used.subscribe(["c"]).unwrap();
    used.close().unwrap();
    let folders = [place.clone()];
    let mut peer = without_rights(&place, &folders);
    check_read_only(&mut peer, &place, &place);
    set_rights(&folders, 0o700);
}
