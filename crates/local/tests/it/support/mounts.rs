//! Peers with file systems of their own, small or read-only ones: in a mount namespace as root, and in a user namespace
//! as well as any other user, where the system allows it.

use super::{DEADLINE, Peer, program, word_of};
use std::path::Path;
use std::process::Command;

pub fn is_root() -> bool {
    // SAFETY: a plain system call.
    unsafe { libc::geteuid() == 0 }
}

impl Peer {
    /// A peer that sees what a shell script mounted for it alone. In the script `$0` is `place`.
    pub fn behind(script: &str, place: &Path) -> Peer {
        let script = format!("{script} && exec \"$1\"");
        let own = if is_root() { "-m" } else { "-rm" };
        let mut command = Command::new("unshare");
        command.args([own, "--propagation", "private", "sh", "-ec", &script]).arg(place).arg(program());
        let mut peer = Peer::start(&mut command);
        peer.send(&format!("list {}", word_of(place)));
        let listed = peer.lines.recv_timeout(DEADLINE);
        assert!(listed.is_ok(), "this test mounts: run it as root, or allow users their own namespaces");
        peer
    }

    /// A peer in the same namespace as another.
    pub fn beside(other: &Peer) -> Peer {
        let mut command = Command::new("nsenter");
        command.args(["-t", &other.pid().to_string(), "-m"]);
        if !is_root() {
            command.args(["-U", "--preserve-credentials"]);
        }
        Peer::start(command.arg(program()))
    }
}
