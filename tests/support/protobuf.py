"""A minimal protobuf reader: the fields of a message by number."""


def fields(data):
    """Maps each field number to its values: integers, or bytes that may be text or a message."""
    found, at = {}, 0
    while at < len(data):
        key, at = varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind in (1, 5):
            width = 8 if kind == 1 else 4
            value, at = int.from_bytes(data[at:at + width], "little"), at + width
        elif kind == 2:
            length, at = varint(data, at)
            value, at = data[at:at + length], at + length
        else:
            raise ValueError(f"unsupported wire type {kind}")
        found.setdefault(number, []).append(value)
    return found


def varint(data, at):
    value, shift = 0, 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at
