"""Messages that are nearly valid, for fuzzing: a corpus of valid ones, and changes to their bytes."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

RUNNING_SKILLS = (
    b'["call","walk",[],{}]',
    b'["call","walk",[1],{"direction":"left"}]',
    b'["call","look",[],{}]',
    b'["call","walk",["far",null,1.5,{"a":[true]}],{"steps":"x"}]',
    b'["call","look",[],{},12]',
    b'["enter","helper",{"x":[1,2,{"y":null}]}]',
    b'["enter","helper",{},1]',
    b'["leave",1,0,"done",null]',
    b'["leave",3,2,null,"ValueError: no"]',
)
"""Messages of a skill's process in the middle of a call."""

FROM_SKILLS = (
    *RUNNING_SKILLS,
    b'["call","win",[],{}]',
    b'["end",0,{"a":1},null]',
    b'["end",3,null,"E: no\\nTraceback"]',
    b'["loaded"]',
    b'["confined",null]',
)
"""Its messages at any time."""

FROM_SESSIONS = (
    b'["print","some output\\n"]',
    b'["done",12,"the tail",null]',
    b'["done",0,"","ValueError: no"]',
    b'["done",9007199254740992,"\\u0000\\u001f","E\\nF"]',
)
"""Messages of a code session's process."""

FRAGMENTS = (
    *(b"", b" ", b"[", b"]", b"{", b"}", b",", b":", b'"', b"\\", b"null", b"true", b"0", b"-1", b"7"),
    *(b"1e999", b"NaN", b"Infinity", b"-0.0", b"9" * 40, b"9" * 5_000, b"18446744073709551616"),
    *(b"1.7976931348623159e308", b'"\\ud800"', b'"\\u0000"', b"\xff", b"\xc3", b"\xed\xa0\x80"),
    *(b"\xef\xbb\xbf", b"\x00", b"\\u", b"\\uD83D", b"[" * 200, b"[" * 200 + b"]" * 200, b'{"a":' * 200),
    *(b'"' + b"x" * 2_000 + b'"', b"[]," * 3_000),
    *(b'"call"', b'"enter"', b'"leave"', b'"end"', b'"print"', b'"done"', b'"walk"', b'"helper"', b'{"x":1}'),
    *(b'"__init__"', b'"' + b"k" * 1_500 + b'":1', b'{"x":1,"x":2}', b"[7,7]", b'"\xe2\x9c\x93"'),
)  # fmt: skip
"""Bytes to put into a message."""


def mutant(corpus: Sequence[bytes], random: Random) -> bytes:
    """Return a message of the corpus after none to a few changes."""
    body = random.choice(corpus)
    for _ in range(random.choice((0, 1, 1, 1, 2, 3, 8))):
        start = random.randint(0, len(body))
        end = min(len(body), start + random.choice((0, 1, 1, 2, 5, 20)))
        match random.randrange(5):
            case 0:
                body = body[:start] + random.choice(FRAGMENTS) + body[end:]
            case 1:
                body = body[:start] + body[end:]
            case 2:
                body = body[:start] + body[start:end] * random.choice((2, 3, 50)) + body[end:]
            case 3:
                body = body[:start] + random.randbytes(end - start) + body[end:]
            case _:
                other = random.choice(corpus)
                body = body[:start] + other[random.randint(0, len(other)) :]
    return body
