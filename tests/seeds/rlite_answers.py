"""What rlite itself answers: a script of commands, and the program that records its answers in `rlite_answers.json`.

    pip install hirlite==0.3.1 && python tests/seeds/rlite_answers.py

Must hold: each step is one command of the subscriber or the publisher, followed by everything that the subscriber can read.
"""
import json
import pathlib
import tempfile

ANSWERS = pathlib.Path(__file__).with_name("rlite_answers.json")
SCRIPT = [
    ("subscriber", "subscribe", "channel", "channel2"),
    ("publisher", "publish", "channel", "hello world"),
    ("publisher", "publish", "channel2", ""),
    ("publisher", "publish", "elsewhere", "x"),
    ("subscriber", "psubscribe", "chan*"),
    ("publisher", "publish", "channel", "twice"),
    ("publisher", "publish", "chance", "by the pattern"),
    ("publisher", "pubsub", "channels", "channel"),
    ("publisher", "pubsub", "numpat"),
    ("subscriber", "subscribe", "channel"),
    ("subscriber", "unsubscribe", "channel2"),
    ("subscriber", "unsubscribe", "never subscribed"),
    ("publisher", "publish", "channel2", "too late"),
    ("subscriber", "punsubscribe", "chan*"),
    ("publisher", "publish", "channel", "once"),
    ("subscriber", "psubscribe", "h?llo"),
    ("publisher", "publish", "hello", "matches"),
    ("publisher", "publish", "heello", "does not"),
    ("subscriber", "unsubscribe"),
    ("publisher", "publish", "channel", "unheard"),
]


def plain(value):
    """With text instead of bytes."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, list) else value


def record():
    import hirlite

    with tempfile.TemporaryDirectory() as folder:
        path = str(pathlib.Path(folder) / "mydb.rld")
        ends = {who: hirlite.Rlite(path=path) for who in ("subscriber", "publisher")}
        answers = []
        for who, *words in SCRIPT:
            own, heard = ends[who].command(*words), []
            while (message := ends["subscriber"].command("__rlite_poll")) is not None:
                heard.append(message)
            answers.append({"answer": plain(own), "heard": plain(heard)})
    ANSWERS.write_text("".join(["[\n", ",\n".join(json.dumps(answer) for answer in answers), "\n]\n"]))


if __name__ == "__main__":
    record()
