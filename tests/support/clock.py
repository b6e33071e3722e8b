"""A server whose wall clock a test can set while it runs. Its monotonic clock stays as it is."""
import glob

from .tavern import Tavern


class JumpingClock(Tavern):
    def __init__(self, *arguments, offset=0, **named):
        super().__init__(*arguments, **named)
        self.offset_file = self.folder / "offset"
        self.jump(offset)

    def jump(self, seconds):
        """Sets the wall clock this far from the machine's."""
        fresh = self.offset_file.with_suffix(".new")
        fresh.write_text(f"{seconds:+}s\n")
        fresh.rename(self.offset_file)

    def command(self):
        library = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")[0]
        wrong = [
            f"LD_PRELOAD={library}", f"FAKETIME_TIMESTAMP_FILE={self.offset_file}", "FAKETIME_NO_CACHE=1",
            "FAKETIME_DONT_FAKE_MONOTONIC=1",
        ]
        return ["env", *wrong, *super().command()]
