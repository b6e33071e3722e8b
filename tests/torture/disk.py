"""A small separate disk for a server or an engine that can be filled completely and freed again.

It is a tmpfs and needs root; without root `Disk.possible()` is false and the fault is left out, which the report mentions.
"""
import os
import pathlib
import subprocess
import tempfile

BALLAST = "ballast"


class Disk:
    def __init__(self, megabytes):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tavern-torture-disk-"))
        self.mounted = False
        if self.possible():
            options = f"size={megabytes}m,mode=0777"
            subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tavern-torture", self.folder], check=True)
            self.mounted = True

    @staticmethod
    def possible():
        return os.geteuid() == 0

    def fill(self):
        """Fills the disk. Space freed by others is filled again by the next call."""
        ballast = os.open(self.folder / BALLAST, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            piece = b"\0" * (1 << 20)
            while piece:
                try:
                    os.write(ballast, piece)
                except OSError:
                    piece = piece[: len(piece) // 2] if len(piece) > 512 else b""
        finally:
            os.close(ballast)

    def free(self):
        (self.folder / BALLAST).unlink(missing_ok=True)

    def close(self):
        if self.mounted:
            # Lazy unmount: files may still be open.
            subprocess.run(["umount", "-l", self.folder], check=False)
        for path in sorted(self.folder.rglob("*"), reverse=True):
            path.unlink() if path.is_file() or path.is_symlink() else path.rmdir()
        self.folder.rmdir()
