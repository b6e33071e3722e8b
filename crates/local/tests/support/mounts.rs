//! Processes that see file systems of their own: small ones that fill up, and some that cannot be written to. As root
//! in a namespace of mounts; as anybody else in one of users as well, where the system allows it.

use super::{PATIENCE, Voice, program, word_of};
use std::path::Path;
use std::process::Command;

pub fn is_root() -> bool {
    // SAFETY: a plain system call.
    unsafe { libc::geteuid() == 0 }
}

impl Voice {
    /// One that sees what a shell script has mounted for it alone. In the script `$0` is `place`.
    pub fn behind(script: &str, place: &Path) -> Voice {
        let script = format!("{script} && exec \"$1\"");
        let own = if is_root() { "-m" } else { "-rm" };
        let mut command = Command::new("unshare");
        command.args([own, "--propagation", "private", "sh", "-ec", &script]).arg(place).arg(program());
        let mut voice = Voice::start(&mut command);
        voice.tell(&format!("list {}", word_of(place)));
        let listed = voice.lines.recv_timeout(PATIENCE);
        assert!(listed.is_ok(), "this test mounts: run it as root, or allow users their own namespaces");
        voice
    }

    /// One that sees the same as another.
    pub fn beside(other: &Voice) -> Voice {
        let mut command = Command::new("nsenter");
        command.args(["-t", &other.pid().to_string(), "-m"]);
        if !is_root() {
            command.args(["-U", "--preserve-credentials"]);
        }
        Voice::start(command.arg(program()))
    }
}
